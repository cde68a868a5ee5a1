"""What the recipe has to know of a dataset format, a file for each that has something to say.

From outside: `base`; the others are found by listing.
"""
