"""Sampling images and videos from prompts with a family and a solver, and contact sheets.

From outside: every file.
"""
