"""The Python API. `import mezzotint` provides its names; each is imported at its first use.

From outside: every file.
"""

from mezzotint import startup

startup.quiet_libraries()
