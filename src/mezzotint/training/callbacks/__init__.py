"""Callbacks: called between steps, they request actions; the trainer acts. To add one: a file in this folder.

From outside: every file without an underscore.
"""
