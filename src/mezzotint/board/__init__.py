"""The local page for runs, data and images (extra `board`), and reports: the same page as one HTML file.

From outside: nothing but `board` and `report`, which the table of commands names.
"""
