"""Pages and tables made after the fact, for people to read.

From outside: every file.
"""
