"""What folders of `compat` share: tables of options, reading command lines, launchers and files of settings.

From outside: every file without an underscore.
"""

ENTRY_POINTS = {"mezzotint.codes": {"kit": "mezzotint.compat.kit.codes"}}
