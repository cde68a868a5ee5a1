"""Tensor names of single files in other programs. To add one: a file here with `LAYOUT`, a KeyMap.

From outside: every file without an underscore.
"""
