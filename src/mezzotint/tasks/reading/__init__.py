"""What commands share before anything is opened: words of the line, foreign lines, runs to go on with.

From outside: every file without an underscore.
"""
