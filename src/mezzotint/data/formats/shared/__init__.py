"""Shared by several formats: captions, tables and their rows, folder names.

From outside: every file without an underscore; formats, and the notes of `tasks`, use it.
"""
