"""Data set formats, one file for each.

From outside: `base`; formats are found by scanning the folder.
"""
