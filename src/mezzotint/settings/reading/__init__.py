"""From a file, a name and `key=value` words to a recipe, or to everything that is wrong with them.

From outside: every file without an underscore.
"""
