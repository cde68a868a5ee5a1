"""What is done from the page, by files and lines that do the same without it: actions of runs, recipes, drawing.

From outside: `actions`, `draw_pages`, `recipe_pages`; `drawer` is a process of its own.
"""
