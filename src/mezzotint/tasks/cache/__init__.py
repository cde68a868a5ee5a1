"""The verb `cache`, and filling a cache on the way of another verb.

From outside: `cache`, `wanted`, `text_files`.
"""
