"""Settings and facts of each optimizer, a file for each, without torch. Its step lies in `training/optimizers/` under
the same name.

From outside: every file, by `registry.find`.
"""
