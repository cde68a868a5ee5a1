"""Facts about data set formats that a recipe needs, without torch, one file each.

From outside: `base`; the others are found by listing.
"""
