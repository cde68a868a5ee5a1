"""How a gradient becomes a step, and which parameters are decayed.

From outside: `rules`, `weight_decay`.
"""
