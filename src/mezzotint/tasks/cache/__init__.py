"""The command `cache`, and what other commands make before the first step: caches, class images.

From outside: `cache`, `class_images`, `carrying`, `inventory`, `text_files`.
"""
