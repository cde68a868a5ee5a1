"""EveryDream2: its command lines and settings files, its data format, and the optimizer AdaCoor.

From outside: nothing; the registry reads `ENTRY_POINTS`.
"""

ENTRY_POINTS = {
    "mezzotint.codes": {"everydream2": "mezzotint.compat.everydream2.codes"},
    "mezzotint.dialects": {"everydream2": "mezzotint.compat.everydream2.dialect"},
    "mezzotint.sampling.prompt_keys": {"everydream2": "mezzotint.compat.everydream2.prompt_keys"},
    "mezzotint.formats": {"everydream": "mezzotint.compat.everydream2.data_format"},
    "mezzotint.settings.formats": {"everydream": "mezzotint.compat.everydream2.data_format_spec"},
    "mezzotint.optimizers": {"adacoor": "mezzotint.compat.everydream2.adacoor"},
    "mezzotint.settings.optimizers": {"adacoor": "mezzotint.compat.everydream2.adacoor_settings"},
}
