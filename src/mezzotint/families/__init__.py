"""Model families, one file each. To add one: `families/name.py` with `class Family(ModelFamily)`.

From outside: `base`; families are found by listing the folder.
"""
