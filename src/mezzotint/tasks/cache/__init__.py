"""The command `cache`, and what other commands prepare before the first step: caches and class pictures.

From outside: `cache`, `class_pictures`, `carrying`, `inventory`, `text_files`.
"""
