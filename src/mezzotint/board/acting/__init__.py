"""Actions of the page, by files and commands that do the same without it: runs, recipes, generating.

From outside: `actions`, `draw_pages`, `queue_pages`, `recipe_pages`, `run_pages`; `drawer` runs as a separate process.
"""
