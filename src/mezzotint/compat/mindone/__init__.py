"""MindONE's example for SDXL: its command lines, YAML files and tools, its data formats, MindSpore's checkpoints with
their tensor names, its optimizer and optimizer files.

From outside: nothing; the registry reads `ENTRY_POINTS`.
"""

ENTRY_POINTS = {
    "mezzotint.codes": {"mindone": "mezzotint.compat.mindone.codes"},
    "mezzotint.dialects": {"mindone-sdxl": "mezzotint.compat.mindone.dialect"},
    "mezzotint.formats": {
        "mindone": "mezzotint.compat.mindone.table_format",
        "mindone-cache": "mezzotint.compat.mindone.cache_format",
    },
    "mezzotint.settings.formats": {
        "mindone": "mezzotint.compat.mindone.table_format_spec",
        "mindone-cache": "mezzotint.compat.mindone.cache_format_spec",
    },
    "mezzotint.files.encoded": {"mindone": "mezzotint.compat.mindone.encoded_files"},
    "mezzotint.weights.layouts": {"mindone-sdxl": "mezzotint.compat.mindone.sdxl_layout"},
    "mezzotint.weights.formats": {"mindspore": "mezzotint.compat.mindone.mindspore_format"},
    "mezzotint.settings.weights_formats": {"mindspore": "mezzotint.compat.mindone.mindspore_format_spec"},
    "mezzotint.optimizers": {"adam-weight-decay": "mezzotint.compat.mindone.adam_weight_decay"},
    "mezzotint.settings.optimizers": {"adam-weight-decay": "mezzotint.compat.mindone.adam_weight_decay_settings"},
    "mezzotint.decay_rules": {"mindone": "mezzotint.compat.mindone.decay_rule"},
    "mezzotint.settings.renamed": {"mindone": "mezzotint.compat.mindone.renamed"},
    "mezzotint.optimizer_files": {"mindone": "mezzotint.compat.mindone.optimizer_file"},
}
