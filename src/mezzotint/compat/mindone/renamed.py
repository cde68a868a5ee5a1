"""Earlier names of values that only users of MindONE need; see `recipe/renamed.py`."""

SETTINGS = {"run.export.mindspore_optimizer": "run.export.optimizer_file"}
VALUES = {"run.export.optimizer_file": {True: "mindone", False: None}}
