"""Layouts: how other programs name the tensors of a model in one file. To add one: a file with `LAYOUT`, a KeyMap.

From outside: every file without an underscore.
"""
