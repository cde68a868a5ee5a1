"""Actions of the page, by files and commands that do the same without it: new runs, recipes, the queue, generating.

From outside: `actions`, `draw_pages`, `new_run_pages`, `queue_pages`, `recipe_pages`; `drawer` runs as a separate
process.
"""
