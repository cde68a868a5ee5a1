"""The data set as columns on disk, made once and read by memory map.

From outside: every file without an underscore.
"""
