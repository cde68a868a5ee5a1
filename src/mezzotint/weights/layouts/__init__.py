"""How other programs name the tensors of a model in one file. To add one: a file here with `LAYOUT`, a KeyMap.

From outside: every file without an underscore.
"""
