"""What runtimes share: what the launcher says, processes over torch.distributed, and blocks kept on the host.

From outside: `launch`, which needs no torch; `offload`; `processes` for runtimes alone.
"""
