"""A module for each of diffusers' training scripts: `DIALECT`.

From outside: nothing; the registry reads `ENTRY_POINTS` of the folder above.
"""
