"""One file, one kind of model. To add one: `families/name.py` with `class Family(ModelFamily)`.

From outside: `base`; the families are found by listing.
"""
