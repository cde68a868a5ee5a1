"""From a file, a name and `key=value` arguments to a recipe, or to all problems in them.

From outside: every file without an underscore.
"""
