"""ostris/ai-toolkit: its YAML and JSON files of training jobs.

From outside: nothing; the registry reads `ENTRY_POINTS`.
"""

ENTRY_POINTS = {"mezzotint.dialects": {"ai-toolkit": "mezzotint.compat.ai_toolkit.dialect"}}
