"""Other trainers: a folder for each, with everything that only its users need. Nothing outside of `compat` imports one.

A folder's `__init__` lists its modules in `ENTRY_POINTS`, which `registry` reads: `{group: {name: module}}`, with the
groups that an installed package may declare in its metadata. Recipes in its `recipes/` ship with the others. A folder
that is removed is missed by nobody.

From outside: nothing.
"""
