"""Shared by runtimes: the launcher's environment, processes over torch.distributed, block offload.

From outside: `launch`, which needs no torch; `offload`; `processes` only for runtimes.
"""
