"""Shared by the folders of `compat`: tables of options, and parsers of command lines, launchers and settings files.

From outside: every file without an underscore.
"""

ENTRY_POINTS = {"mezzotint.codes": {"kit": "mezzotint.compat.kit.codes"}}
