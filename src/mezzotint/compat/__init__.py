"""Compatibility with other trainers: a folder for each. Nothing outside of `compat` imports one.

A folder's `__init__` lists its modules in `ENTRY_POINTS`, which `registry` reads: `{group: {name: module}}`, with the
groups that an installed package may declare in its metadata. Recipes in its `recipes/` ship with the others. The rest
of the package works without any of these folders.

From outside: nothing.
"""
