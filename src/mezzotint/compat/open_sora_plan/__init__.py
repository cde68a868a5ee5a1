"""Open-Sora-Plan: its command lines, its lists of clips with text embeddings, and the family LatteT2V.

From outside: nothing; the registry reads `ENTRY_POINTS`.
"""

ENTRY_POINTS = {
    "mezzotint.codes": {"open-sora-plan": "mezzotint.compat.open_sora_plan.codes"},
    "mezzotint.dialects": {"open-sora-plan": "mezzotint.compat.open_sora_plan.dialect"},
    "mezzotint.formats": {"clip-list": "mezzotint.compat.open_sora_plan.clip_list"},
    "mezzotint.settings.formats": {"clip-list": "mezzotint.compat.open_sora_plan.clip_list_spec"},
    "mezzotint.tasks.text_files": {"clip-list": "mezzotint.compat.open_sora_plan.text_file_writing"},
    "mezzotint.families": {"latte": "mezzotint.compat.open_sora_plan.latte"},
    "mezzotint.settings.families": {"latte": "mezzotint.compat.open_sora_plan.latte_spec"},
    "mezzotint.settings.renamed": {"open-sora-plan": "mezzotint.compat.open_sora_plan.renamed"},
    "mezzotint.weights.layouts": {"latte": "mezzotint.compat.open_sora_plan.latte_layout"},
}
