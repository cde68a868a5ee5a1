"""Readers of run folders and data sets for the page, following them as they grow; they never write to a run's folder.

From outside: every file.
"""
