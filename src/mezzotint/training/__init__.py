"""The loop, what it remembers, and what watches it.

From outside: every file.
"""
