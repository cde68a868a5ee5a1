"""kohya-ss/musubi-tuner: its command lines and its settings, data set and sample prompt files.

From outside: nothing; the registry reads `ENTRY_POINTS`.
"""

ENTRY_POINTS = {"mezzotint.dialects": {"musubi": "mezzotint.compat.musubi.dialect"}}
