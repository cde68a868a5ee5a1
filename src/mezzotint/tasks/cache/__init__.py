"""The verb `cache`, and filling a cache on the way of another verb.

From outside: `cache`, `inventory`, `text_files`.
"""
