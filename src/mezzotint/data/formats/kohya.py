"""The format `kohya`: folders such as `10_sks dog`, whose names say how often an epoch visits their pictures and what
the pictures without a caption file show."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from mezzotint.data.formats.base import Format, Item, Noted, Skipped, Source
from mezzotint.data.formats.shared.folder_repeats import repeated
from mezzotint.data.formats.shared.sidecars import SIDECARS, samples
from mezzotint.data.media import decoding
from mezzotint.errors import DatasetError
from mezzotint.settings.counting import counted


def read_samples(source: Source) -> Iterator[Item]:
    """The samples of `sidecars.samples`, of the pictures that lie directly in the folders with a number.

    An epoch visits each picture of `10_sks dog` ten times `source.repeats`; its caption is that of the file beside it,
    or else "sks dog". Pictures in folders without a number, or with 0, and those deeper or higher are left out, as they
    are there, and named. Raises DatasetError E1150 where no folder has a number, and what `sidecars.samples` raises.
    """
    names, prefix = source.listing.names, source.prefix
    reasons = {name: _why_not(name) for name in names}
    is_used = np.fromiter((reason is None for reason in reasons.values()), np.bool_, len(names))
    if not is_used.any():
        raise DatasetError(_none(source), code="E1150")
    ignored: dict[str, list[str]] = {}
    for name, reason in reasons.items():
        if reason is not None and not name.lower().endswith(SIDECARS):
            ignored.setdefault(name.rpartition("/")[0].partition("/")[0], []).append(reason)
            yield Skipped(prefix + name, reason, is_wanted=True)
    for folder, of_folder in sorted(ignored.items()):
        yield Noted(prefix + folder, f"{counted(len(of_folder), 'picture')} left out: {of_folder[0]}")
    listing = replace(
        source.listing, names=[name for name in names if reasons[name] is None], stats=source.listing.stats[is_used]
    )
    of_names = replace(source, listing=listing)
    yield from samples(of_names, word="picture", folder_of=lambda name: repeated(name.partition("/")[0]), by_name=False)


def _why_not(name: str) -> str | None:
    """Why a file is not used, or None."""
    folder, slash, rest = name.partition("/")
    if not slash:
        return "it lies in no folder 10_name"
    words = repeated(folder)
    if words is None:
        return f"{folder} says no number of repeats; a folder is called 10_name"
    if not words.repeats:
        return f"{folder} says 0 repeats"
    return "it does not lie directly in its folder 10_name" if "/" in rest else None


def _none(source: Source) -> str:
    if repeated(source.root.name) is not None:
        return (
            f"{source.root}: is itself a folder with a number; data.path names the folder that it lies in: "
            f"data.path={source.root.parent}"
        )
    return (
        f"{source.root}: no folder in it is called 10_name, a number of repeats, an underscore and words, with "
        "pictures directly inside; name folders so, or set data.format=image-folder, which takes every picture once"
    )


FORMAT = Format(read_samples=read_samples, suffixes=decoding.SUFFIXES | set(SIDECARS))
