"""The format `clip-list`: a list file as Open-Sora-Plan's, a line for each data set: folder of clips, annotation file.

From outside: the names below; `samples`, for captions that are encoded ahead.
"""

from mezzotint.data.formats.clip_list._reader import SUFFIXES, list_files, read_samples

__all__ = ["SUFFIXES", "list_files", "read_samples"]
