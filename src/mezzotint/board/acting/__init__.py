"""Actions of the page, by files and commands that do the same without it: runs, recipes, generating, edits of data.

From outside: `actions`, `draw_pages`, `edit_pages`, `edits`, `queue_pages`, `recipe_pages`; `drawer` runs as a separate
process.
"""
