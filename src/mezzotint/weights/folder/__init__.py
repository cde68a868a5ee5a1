"""Model folders in diffusers' layout: reading, the networks in them, and writing.

From outside: every file.
"""
