"""The format `webdataset`: pictures and captions in tar shards, grouped by key, read where they lie."""

from mezzotint.data.formats.webdataset._reader import SUFFIXES, list_files, read_samples

__all__ = ["SUFFIXES", "list_files", "read_samples"]
