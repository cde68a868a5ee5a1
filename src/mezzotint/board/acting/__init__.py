"""What the page can do, with the same files and commands as without it: actions on runs, recipes, generating images.

From outside: `actions`, `draw_pages`, `recipe_pages`; `drawer` runs as a separate process.
"""
