"""The data set as columns on disk, indexed once and read by memory map.

From outside: every file without an underscore.
"""
