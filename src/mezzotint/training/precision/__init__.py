"""Number types of weights and computation.

From outside: every file.
"""
