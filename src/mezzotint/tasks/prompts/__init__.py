"""Prompts: what previews draw, and what is cleaned as captions are.

From outside: every file.
"""
