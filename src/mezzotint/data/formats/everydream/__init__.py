"""The format `everydream`: folders and manifests as EveryDream2 reads them.

From outside: nothing; the registry finds it by its place.
"""

from mezzotint.data.formats.everydream._reader import FORMAT

__all__ = ["FORMAT"]
