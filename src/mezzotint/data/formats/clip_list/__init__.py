"""The format `clip-list`: a list file as Open-Sora-Plan's, a line for each data set: folder of clips, annotation file.

From outside: `FORMAT`; `samples`, for captions that are encoded ahead.
"""

from mezzotint.data.formats.clip_list.samples import FORMAT

__all__ = ["FORMAT"]
