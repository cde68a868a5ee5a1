"""The command `train`.

From outside: `train`, and what `check`, `bench` and `sample` ask for as a run would: every file without an underscore.
"""
