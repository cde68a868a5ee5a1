"""What the page shows of a run folder, read as the folder grows; nothing here writes into it.

From outside: `metrics`, `thinning`, `runs`, `pictures`, `values`, `tails`.
"""
