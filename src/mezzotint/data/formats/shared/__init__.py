"""What several formats need: tables and their rows, captions beside files, names of folders.

From outside: every file without an underscore; formats, and the notes of `tasks`, use it.
"""
