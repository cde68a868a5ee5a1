"""Prompts and captions: prompts of previews, cleaning, token limits.

From outside: every file.
"""
