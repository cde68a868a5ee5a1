"""Reproducibility of runs: the commands `verify`, `diff`, `prove`, and the manifest.

From outside: the commands, `commit` and `manifest`.
"""
