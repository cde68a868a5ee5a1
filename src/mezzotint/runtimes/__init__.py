"""Runtimes: one process, or several over torch.distributed. To add one: `runtimes/name.py` with `class Runtime`.

From outside: `base`, and `single`, which needs no other process; runtimes are found by listing the folder.
"""
