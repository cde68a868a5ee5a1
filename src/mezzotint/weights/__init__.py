"""Model files: the one place that opens them, what a model folder holds, which weights a file carries.

From outside: every file.
"""
