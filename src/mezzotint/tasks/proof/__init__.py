"""What a run was made of, and whether it can be had again: the commands `verify`, `diff`, `prove`, and the manifest.

From outside: the commands, `commit` and `manifest`.
"""
