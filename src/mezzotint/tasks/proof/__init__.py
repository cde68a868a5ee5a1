"""Inputs of a run and whether they are unchanged: the commands `verify`, `diff`, `prove`, and the manifest.

From outside: the commands, `commit` and `manifest`.
"""
