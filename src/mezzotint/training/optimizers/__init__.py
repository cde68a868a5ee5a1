"""Optimizer steps, one file for each optimizer of `settings/optimizers/`, and which parameters are decayed.

From outside: every file without an underscore, by `registry.find`; `base`, `weight_decay`.
"""
