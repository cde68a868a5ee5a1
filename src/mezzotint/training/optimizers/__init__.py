"""Optimizer steps, one file for each optimizer of `recipe/optimizers/`, and the parameters without weight decay.

From outside: every file without an underscore, by `registry.find`; `base`, `weight_decay`.
"""
