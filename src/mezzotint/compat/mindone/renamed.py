"""Earlier names of values that only users of MindONE need; see `recipe/renamed.py`."""

VALUES = {"run.export.optimizer_file": {True: "mindone", False: None}}
