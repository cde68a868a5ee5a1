"""Where a run computes: one process, or many over torch.distributed. To add one: `runtimes/name.py` with `class
Runtime`."""
