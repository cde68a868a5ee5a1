"""The command `check`.

From outside: `check`, and what it counts: every file without an underscore.
"""
