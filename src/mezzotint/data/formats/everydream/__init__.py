"""The format `everydream`: folders and manifests as EveryDream2 reads them."""

from mezzotint.data.formats.everydream._reader import MANIFESTS, OWN_FLIPS, SUFFIXES, list_files, read_samples

__all__ = ["MANIFESTS", "OWN_FLIPS", "SUFFIXES", "list_files", "read_samples"]
