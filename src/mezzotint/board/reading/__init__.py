"""What the page shows of run folders and data sets, read as they grow; a run's folder is never written into.

From outside: every file.
"""
