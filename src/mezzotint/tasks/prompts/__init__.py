"""Prompts and captions: what previews draw, what is cleaned, what is too long for its encoder.

From outside: every file.
"""
