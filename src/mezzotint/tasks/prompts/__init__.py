"""Prompts and captions: prompts of previews, cleaning, captions that are too long for the encoder.

From outside: every file.
"""
