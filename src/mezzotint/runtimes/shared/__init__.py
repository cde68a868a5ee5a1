"""Code shared by runtimes: the launcher's environment, processes over torch.distributed, and block offload.

From outside: `launch`, which needs no torch; `offload`; `processes` only for runtimes.
"""
