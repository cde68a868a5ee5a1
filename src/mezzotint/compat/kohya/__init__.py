"""kohya-ss/sd-scripts: its command lines and its settings, data set and sample prompt files.

From outside: nothing; the registry reads `ENTRY_POINTS`.
"""

ENTRY_POINTS = {
    "mezzotint.dialects": {"kohya": "mezzotint.compat.kohya.dialect"},
    "mezzotint.formats": {"kohya-subsets": "mezzotint.compat.kohya.subsets_format"},
    "mezzotint.settings.formats": {"kohya-subsets": "mezzotint.compat.kohya.subsets_format_spec"},
}
