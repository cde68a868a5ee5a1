"""The local page over runs, data and pictures (extra `board`), and the same as one file.

From outside: nothing but `board` and `report`, which the table of commands names.
"""
