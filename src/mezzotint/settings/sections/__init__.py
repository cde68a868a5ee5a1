"""The settings, a file for each section of a recipe or part of one.

From outside: every file without an underscore.
"""
