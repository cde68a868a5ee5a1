"""Reports about runs and data sets, for people to read.

From outside: every file.
"""
