"""The data set as columns on disk, made once and read by memory map.

From outside: `catalogue`, `indexing`, `findings`.
"""
