"""A whole model in one file, both ways, and what such a file has besides.

From outside: every file.
"""
