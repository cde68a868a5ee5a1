"""The facts of each model family, without torch, one file each with `SPEC`: settings, parts, files.

From outside: every file. To add one: `settings/families/name.py`, and `families/name.py` that computes.
"""
