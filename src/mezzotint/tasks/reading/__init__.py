"""What commands share before anything is opened: parsing the command line, foreign command lines, runs to resume.

From outside: every file without an underscore.
"""
