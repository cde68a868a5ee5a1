"""One process, one device."""

from mezzotint.runtimes import base


class Runtime(base.Runtime):
    """A single process; nothing is exchanged."""
