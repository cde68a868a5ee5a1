"""A model folder in diffusers' layout: its contents, its networks, and how it is written.

From outside: every file.
"""
