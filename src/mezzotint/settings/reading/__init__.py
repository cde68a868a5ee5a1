"""From a file or name and `key=value` overrides to a recipe, or to all of its problems.

From outside: every file without an underscore.
"""
