"""The number type of each computation.

From outside: every file.
"""
