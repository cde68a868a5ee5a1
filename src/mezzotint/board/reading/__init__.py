"""Reads run folders and data sets for the page, as they grow; never writes into a run folder.

From outside: every file.
"""
