"""Shared by runtimes: the launcher's environment, processes over torch.distributed, block offload, the machine's load.

From outside: `launch`, which needs no torch; `offload`; `machine_load`; `processes` only for runtimes.
"""
