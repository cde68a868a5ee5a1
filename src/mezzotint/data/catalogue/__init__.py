"""The data set as columns on disk, made once and memory-mapped.

From outside: every file without an underscore.
"""
