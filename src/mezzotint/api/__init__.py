"""The Python API. `import mezzotint` gives its names; each is imported when it is first used.

From outside: every file.
"""

from mezzotint import startup

startup.quiet_libraries()
