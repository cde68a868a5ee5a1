"""How data sets are written down: one file, one format.

From outside: `base`, and `clip_list`, whose lists name embeddings too; formats are found by listing.
"""
