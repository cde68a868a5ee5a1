"""How data sets are written down: one file, one format.

From outside: `base`; formats are found by listing.
"""
