"""A whole model in one file: reading, writing, metadata.

From outside: every file.
"""
