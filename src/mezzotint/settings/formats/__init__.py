"""What a recipe needs to know of a data format, one file for each format with special rules.

From outside: `base`; the others are found by listing.
"""
