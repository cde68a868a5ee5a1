"""Settings that only one family of models has, a file for each.

From outside: every file.
"""
