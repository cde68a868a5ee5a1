"""Where a run computes: one process, or many over torch.distributed. To add one: `runtimes/name.py` with `class
Runtime`.

From outside: `base`, and `single`, which needs no other process; runtimes are found by listing.
"""
