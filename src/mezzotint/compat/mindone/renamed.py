"""Earlier names of settings and values that only users of MindONE need; see `settings/renamed.py`."""

SETTINGS = {
    "run.export.mindspore": "run.export.file_format",
    "run.export.mindspore_optimizer": "run.export.optimizer_file",
}
VALUES = {
    "run.export.file_format": {True: "mindspore", False: "safetensors"},
    "run.export.optimizer_file": {True: "mindone", False: None},
}
