"""The format `webdataset`: pictures and captions in tar shards, grouped by key, read where they lie."""

from mezzotint.data.formats.webdataset._reader import FORMAT

__all__ = ["FORMAT"]
