"""The facts of each family of models, without torch, a file for each with `SPEC`: settings, parts, files.

From outside: every file. To add one: `settings/families/name.py`, and `families/name.py` that computes.
"""
