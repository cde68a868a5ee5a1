"""The format `everydream`: folders and manifests as EveryDream2 reads them."""

from mezzotint.data.formats.everydream._reader import FORMAT

__all__ = ["FORMAT"]
