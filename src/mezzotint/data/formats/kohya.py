"""The format `kohya`: folders such as `10_sks dog`, whose names contain the repeats of their images and the caption of
images without a caption file."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from mezzotint.data.formats.base import Format, Item, Noted, Skipped, Source
from mezzotint.data.formats.shared.folder_repeats import parse_folder_name
from mezzotint.data.formats.shared.sidecars import SIDECARS, samples
from mezzotint.data.media import decoding
from mezzotint.errors import DatasetError
from mezzotint.settings.counting import format_count


def read_samples(source: Source) -> Iterator[Item]:
    """The samples of `sidecars.samples`, for the images directly in the folders with a number.

    An epoch visits each image of `10_sks dog` ten times `source.repeats`; its caption is that of its sidecar file, or
    else "sks dog". Images in folders without a number, or with 0, and at other levels are skipped, as in kohya's
    scripts, and reported. Raises DatasetError E1150 if no folder has a number, and as `sidecars.samples`.
    """
    names, prefix = source.listing.names, source.prefix
    reasons = {name: _skip_reason(name) for name in names}
    is_used = np.fromiter((reason is None for reason in reasons.values()), np.bool_, len(names))
    if not is_used.any():
        raise DatasetError(_no_folder_message(source), code="E1150")
    ignored: dict[str, list[str]] = {}
    for name, reason in reasons.items():
        if reason is not None and not name.lower().endswith(SIDECARS):
            ignored.setdefault(name.rpartition("/")[0].partition("/")[0], []).append(reason)
            yield Skipped(prefix + name, reason, is_wanted=True)
    for folder, of_folder in sorted(ignored.items()):
        yield Noted(prefix + folder, f"{format_count(len(of_folder), 'image')} left out: {of_folder[0]}")
    listing = replace(
        source.listing, names=[name for name in names if reasons[name] is None], stats=source.listing.stats[is_used]
    )
    of_names = replace(source, listing=listing)
    yield from samples(
        of_names, word="image", folder_of=lambda name: parse_folder_name(name.partition("/")[0]), by_name=False
    )


def _skip_reason(name: str) -> str | None:
    """Why a file is not used, or None."""
    folder, slash, rest = name.partition("/")
    if not slash:
        return "not in a folder such as 10_name"
    parsed = parse_folder_name(folder)
    if parsed is None:
        return f"{folder} has no number of repeats; name it like 10_name"
    if not parsed.repeats:
        return f"{folder} has 0 repeats"
    return "not directly in its folder such as 10_name" if "/" in rest else None


def _no_folder_message(source: Source) -> str:
    if parse_folder_name(source.root.name) is not None:
        return f"{source.root}: is itself a folder with a number; set its parent folder: data.path={source.root.parent}"
    return (
        f"{source.root}: contains no folder such as 10_name (a number of repeats, an underscore and words) with images "
        "directly inside; name folders so, or set data.format=image-folder, which uses every image once"
    )


def _folder_caption(name: str) -> str:
    parsed = parse_folder_name(name.partition("/")[0])
    return parsed.caption if parsed is not None else ""


FORMAT = Format(
    read_samples=read_samples,
    suffixes=decoding.SUFFIXES | set(SIDECARS),
    captions=("sidecars",),
    folder_caption=_folder_caption,
)
