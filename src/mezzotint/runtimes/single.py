"""One process, one device."""

from mezzotint.runtimes import base


class Runtime(base.Runtime):
    """Nothing has to be exchanged."""
