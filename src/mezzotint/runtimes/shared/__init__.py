"""What runtimes share: what the launcher says, and processes over torch.distributed.

From outside: `launch`, which needs no torch; `processes` for runtimes alone.
"""
