"""Names of settings in other trainers, for `mezzotint explain` and for hints: kohya's scripts, diffusers' examples,
OneTrainer, SimpleTuner, EveryDream2.

From outside: nothing; the registry reads `ENTRY_POINTS`.
"""

ENTRY_POINTS = {"mezzotint.settings.setting_names": {"trainers": "mezzotint.compat.setting_names.table"}}
