"""The report of indexing a data set: files used, skipped, left out, and why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mezzotint.data.media.colour import CONVERSION_NAMES


@dataclass(frozen=True, slots=True)
class DataReport:
    """Counts and lists of files. used: samples in the catalogue. skipped: (path, reason) of unusable files. left_out:
    (path, reason) of files that the recipe excludes. notes: (path, reason) of other remarks. converted: (conversion,
    number of samples).
    upscaled: samples smaller than their bucket. empty_captions, long_captions: of the used samples' captions; long
    means more than `indexing.LONG_CAPTION_WORDS` words. unknown: (extension, files) that no format reads. decoded:
    files probed for this index; the others were in an earlier index."""

    used: int
    skipped: tuple[tuple[str, str], ...]
    left_out: tuple[tuple[str, str], ...]
    notes: tuple[tuple[str, str], ...]
    converted: tuple[tuple[str, int], ...]
    upscaled: int
    empty_captions: int
    long_captions: int
    unknown: tuple[tuple[str, int], ...]
    decoded: int


def report_of(table: dict[str, NDArray[Any]], about: dict[str, Any]) -> DataReport:
    """The report of an index. table, about: of its files."""
    flags = table["conversions"]
    converted = ((word, int(np.count_nonzero(flags & np.uint16(flag)))) for flag, word in CONVERSION_NAMES.items())
    return DataReport(
        used=len(flags),
        skipped=tuple((path, reason) for path, reason, is_wanted in about["skipped"] if not is_wanted),
        left_out=tuple((path, reason) for path, reason, is_wanted in about["skipped"] if is_wanted),
        notes=tuple((path, reason) for path, reason in about["notes"]),
        converted=tuple((word, count) for word, count in converted if count),
        upscaled=about["upscaled"],
        empty_captions=about["empty_captions"],
        long_captions=about["long_captions"],
        unknown=tuple(sorted(about["unknown"].items())),
        decoded=about["decoded"],
    )


def explain_no_samples(report: DataReport, listed: str) -> str:
    """Why a data set has no samples. listed: the first unusable files, with their reasons."""
    if report.skipped:
        return f"none of {len(report.skipped)} files can be used: {listed}; see their reasons, or set another data.path"
    if report.left_out:
        return (
            f"all {len(report.left_out)} samples are left out ({report.left_out[0][1]}); change data.captions.missing, "
            "data.small_images or data.clips"
        )
    if report.unknown:
        kinds = ", ".join(f"{readable(suffix) or 'no extension'} ({count})" for suffix, count in report.unknown[:10])
        has_archives = any(suffix in (".zip", ".tar", ".gz", ".7z", ".rar") for suffix, _ in report.unknown)
        remedy = "unpack archives there" if has_archives else "save the images as PNG, JPEG or WebP"
        return f"no images, only files with other extensions: {kinds}; {remedy}"
    return "no images found; add images, or set another data.path"


def readable(text: str) -> str:
    """A file name on one line, safe for a terminal: control characters, line ends and bytes that are not UTF-8 are
    escaped."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)
