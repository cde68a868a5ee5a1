"""What several formats need: captions, tables and their rows, names of folders.

From outside: every file without an underscore; formats, and the notes of `tasks`, use it.
"""
