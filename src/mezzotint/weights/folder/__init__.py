"""A model folder in diffusers' layout: what lies in it, its networks, and how it is written.

From outside: every file.
"""
