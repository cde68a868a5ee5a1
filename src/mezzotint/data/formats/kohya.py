"""The format `kohya`: folders such as `10_sks dog`, whose names say how often an epoch visits their pictures and what
the pictures without a caption file show."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from mezzotint.data.formats.base import Format, Item, Noted, Skipped, Source
from mezzotint.data.formats.shared.folder_repeats import Repeated, repeated
from mezzotint.data.formats.shared.sidecars import SIDECARS, samples
from mezzotint.data.media import decoding
from mezzotint.errors import DatasetError
from mezzotint.recipe.counting import counted


def read_samples(source: Source) -> Iterator[Item]:
    """The samples of `sidecars.samples`, of the pictures that lie directly in the folders with a number.

    An epoch visits each picture of `10_sks dog` ten times `source.repeats`; its caption is that of the file beside it,
    or else "sks dog". Pictures in folders without a number, or with 0, and those deeper or higher are left out, as they
    are there, and named. Raises DatasetError E1150 where no folder has a number, and what `sidecars.samples` raises.
    """
    names = source.listing.names
    is_used = np.fromiter((_folder(name) is not None for name in names), np.bool_, len(names))
    if not is_used.any():
        raise DatasetError(_none(source), code="E1150")
    ignored: dict[str, list[str]] = {}
    for name in (name for name, used in zip(names, is_used.tolist(), strict=True) if not used):
        if not name.lower().endswith(SIDECARS):
            ignored.setdefault(name.rpartition("/")[0].partition("/")[0], []).append(_why(name))
            yield Skipped(source.prefix + name, _why(name), is_wanted=True)
    for folder, reasons in sorted(ignored.items()):
        yield Noted(source.prefix + folder, f"{counted(len(reasons), 'picture')} left out: {reasons[0]}")
    kept = [name for name, used in zip(names, is_used.tolist(), strict=True) if used]
    listing = replace(source.listing, names=kept, stats=source.listing.stats[is_used])
    yield from samples(replace(source, listing=listing), word="picture", folder_of=_folder, by_name=False)


def _folder(name: str) -> Repeated | None:
    """What the folder of a file says; None where the file is not used."""
    folder, slash, rest = name.partition("/")
    said = repeated(folder) if slash and "/" not in rest else None
    return said if said is not None and said.repeats else None


def _why(name: str) -> str:
    folder, slash, _ = name.partition("/")
    if not slash or not folder:
        return "it lies in no folder 10_name"
    said = repeated(folder)
    if said is None:
        return f"{folder} says no number of repeats; a folder is called 10_name"
    return f"{folder} says 0 repeats" if not said.repeats else "it does not lie directly in its folder 10_name"


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
