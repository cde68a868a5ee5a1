"""The command `cache`, and what is made before the first step on the way of another command: caches, class pictures.

From outside: `cache`, `class_pictures`, `carrying`, `inventory`, `text_files`.
"""
