"""Settings and facts of each optimizer, one file each, without torch. `training/optimizers/` has its step under the
same name.

From outside: every file, by `registry.find`.
"""
