"""The format `clip-list`: a list file as Open-Sora-Plan's, a line for each data set: folder of clips, annotation in
JSON; or, with `data.clips.texts`, folder of clips, folder of embeddings, annotation."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from mezzotint.data.buckets.clip_buckets import Limits
from mezzotint.data.files.listing import Listing
from mezzotint.data.formats.base import Format, Skipped, Source
from mezzotint.data.formats.clip_list.samples import ListSettings, named_files, samples
from mezzotint.data.media import clip_files, decoding
from mezzotint.recipe.sections.data import DataSettings
from mezzotint.stages import Sample


def list_files(path: Path, settings: DataSettings) -> Listing:
    """The list itself, first, and all that its entries name and is there, in their order. Names are relative to the
    list's folder where they lie below it, absolute elsewhere. Raises DatasetError E1231 and E1232 for a list or an
    annotation that cannot be read as one."""
    real = path.expanduser().resolve()
    stats: dict[str, tuple[int, int, int]] = {}
    for place in (real, *named_files(real, _settings(settings))):
        name = os.fspath(place).removeprefix(os.fspath(real.parent) + os.sep)
        try:
            stat = os.stat(place)
        except OSError:
            continue  # the samples say so
        stats[name] = (stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns)
    numbers = np.array(list(stats.values()), dtype=np.int64).reshape(-1, 3)
    return Listing(real.parent, list(stats), numbers, (), {})


def read_samples(source: Source) -> Iterator[Sample | Skipped]:
    """The samples of `samples.samples`. Raises DatasetError E1231, E1232; E1290 where clips cannot be read."""
    if any(clip_files.is_clip(name) for name in source.listing.names):
        clip_files.decoder()
    path = source.root / source.listing.names[0]
    return samples(path, _settings(source.settings), prefix=source.prefix, repeats=source.repeats)


def _settings(settings: DataSettings) -> ListSettings:
    clips = settings.clips
    return ListSettings(
        has_texts=clips.texts,
        filter_nonexistent=clips.missing == "skip",
        limits=Limits(clips.min_size, clips.max_size, clips.max_aspect),
    )


FORMAT = Format(
    read_samples=read_samples,
    suffixes=clip_files.SUFFIXES | decoding.SUFFIXES,  # pictures for single frames
    list_files=list_files,
)
