"""Actions of the page, by files and commands that do the same without it: runs, recipes, the queue, generating, edits
of data.

From outside: `actions`, `draw_pages`, `edit_pages`, `edits`, `new_run_pages`, `queue_pages`, `recipe_pages`,
`run_pages`; `drawer` runs as a separate process.
"""
