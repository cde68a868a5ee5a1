"""What happened to each file of the data set, for programs: one line of JSON for each file."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mezzotint import durable
from mezzotint.data.buckets import buckets
from mezzotint.data.catalogue import catalogue as catalogues
from mezzotint.data.catalogue.catalogue import Catalogue
from mezzotint.data.findings import images
from mezzotint.data.media.colour import conversions_of
from mezzotint.settings.sections.data import DataSettings
from mezzotint.shapes import Size

FILE = "data_report.jsonl"
_VERSION = 1  # of the lines; stored lines of another version are rewritten


def write(
    catalogue: Catalogue, folder: Path, settings: DataSettings, lost_tokens: Mapping[int, int] | None = None
) -> Path:  # fmt: skip
    """Writes `data_report.jsonl` into a run folder: for each file its id, its class (used, converted, skipped,
    noted), the reason and what was converted; for a sample also size, bucket, SHA-256 and findings (`_findings`).
    Images that are joined to video batches follow, in the set `stills`. lost_tokens: number of tokens cut from captions
    that are too long, by row. The lines of a large data set are stored in its memo, and the next start copies them.
    Raises StorageError."""
    path = folder / FILE
    with durable.replacing(path) as temporary:
        if len(catalogue) < catalogues.MANY:
            _write_lines(temporary, catalogue, settings, lost_tokens or {})
            return path
        joined_images = catalogue.joined_images.fingerprint if catalogue.joined_images is not None else ""
        key = (
            _VERSION,
            catalogue.fingerprint,
            joined_images,
            catalogue.report,
            settings.model_dump_json(),
            lost_tokens,
        )
        with open(temporary, "wb") as file:
            is_stored = catalogue.memo.copy_to(file, "report", key)
        if not is_stored:
            _write_lines(temporary, catalogue, settings, lost_tokens or {})
            with open(temporary, "rb") as content:
                catalogue.memo.put("report", key, content, keep=1)
    return path


def _write_lines(
    path: Path, catalogue: Catalogue, settings: DataSettings, lost_tokens: Mapping[int, int]
) -> None:  # fmt: skip
    with open(path, "w", encoding="ascii") as file:
        file.writelines(f"{{{line}\n" for line in _lines(catalogue, settings, lost_tokens))
        if catalogue.joined_images is not None:
            joined_images = _lines(catalogue.joined_images, None, {})
            file.writelines(f'{{"set": "stills", {line}\n' for line in joined_images)


def _findings(
    catalogue: Catalogue, settings: DataSettings | None, lost_tokens: Mapping[int, int]
) -> dict[int, dict[str, Any]]:  # fmt: skip
    """Findings of some rows: `enlarged` to the bucket; `seen`, the share of the image that is left after the crop, if
    that is less than half; `same_as` another file; `captions`, if there are several; `empty_caption`; `lost_tokens`."""
    findings: dict[int, dict[str, Any]] = {}
    rows = np.arange(len(catalogue))
    if settings is not None:
        for row in np.flatnonzero(images.enlargements(catalogue, rows, settings) > 1).tolist():
            findings.setdefault(row, {})["enlarged"] = True
        shares = images.seen_shares(catalogue, rows, settings)
        for row in np.flatnonzero(shares < images.MOSTLY_CUT).tolist():
            findings.setdefault(row, {})["seen"] = round(float(shares[row]), 4)
    for row, first in images.find_copies(catalogue).items():
        findings.setdefault(row, {})["same_as"] = catalogue.key(first)
    counts = catalogue.caption_counts()
    for row in np.flatnonzero(counts > 1).tolist():
        findings.setdefault(row, {})["captions"] = int(counts[row])
    for row in catalogue.with_empty_captions().tolist():
        findings.setdefault(row, {})["empty_caption"] = True
    for row, count in lost_tokens.items():
        findings.setdefault(row, {})["lost_tokens"] = count
    return findings


def _lines(catalogue: Catalogue, settings: DataSettings | None, lost_tokens: Mapping[int, int]) -> Iterator[str]:
    """JSON objects without their first brace. settings: None for images joined to video batches, which have many sizes.

    The part that many samples share is formatted once: with a million images the run waits for this."""
    findings, digests = _findings(catalogue, settings, lost_tokens), catalogue.digest.tobytes().hex()
    columns: list[NDArray[Any]] = [catalogue.conversions, catalogue.width, catalogue.height, catalogue.frames]
    table = [""]
    if settings is not None:
        kinds, numbers = _bucket_names(catalogue, settings)
        columns.append(numbers)
        table = [f', "bucket": {json.dumps(kind)}' for kind in kinds]

    @cache
    def shared_part(flags: int, width: int, height: int, frames: int, bucket: int = 0) -> str:
        return f', {_conversion(flags)}, {_size(width, height, frames)}{table[bucket]}, "sha256": "'

    shared_parts = map(shared_part, *(column.tolist() for column in columns))
    for row, (key, middle) in enumerate(zip(catalogue.keys(), shared_parts, strict=True)):
        line = f'"id": {_as_json(key)}{middle}{digests[64 * row : 64 * row + 64]}"'
        yield f"{line}, {json.dumps(findings[row])[1:]}" if row in findings else line + "}"
    for files in (catalogue.report.skipped, catalogue.report.left_out):
        for path, reason in files:
            yield json.dumps({"id": path, "class": "skipped", "reason": reason})[1:]
    for path, reason in catalogue.report.notes:
        yield json.dumps({"id": path, "class": "noted", "reason": reason})[1:]


def _bucket_names(catalogue: Catalogue, settings: DataSettings) -> tuple[list[str], NDArray[np.int64]]:
    """The names of the buckets of samples, `512×512`, or in several base sizes `512×512 768×768`; and the index of each
    row's name, (n,)."""
    sizes, placed = buckets.table(settings), catalogue.buckets_of(np.arange(len(catalogue)), settings)
    if placed.is_one_each:
        return [str(size) for size in sizes], placed.bucket.astype(np.int64)
    of_row = np.full((len(catalogue), int(placed.choices.max(initial=1))), -1, np.int16)
    of_row[placed.sample, placed.choice] = placed.bucket
    kinds, numbers = np.unique(of_row, axis=0, return_inverse=True)
    return [" ".join(str(sizes[i]) for i in kind if i >= 0) for kind in kinds.tolist()], numbers.ravel()


_as_json = json.encoder.encode_basestring_ascii  # as `json.dumps` for a string, without its overhead


def _conversion(flags: int) -> str:
    conversions = conversions_of(flags)
    return json.dumps({"class": "converted" if conversions else "used", "conversion": list(conversions)})[1:-1]


def _size(width: int, height: int, frames: int) -> str:
    return json.dumps({"size": str(Size(width, height, frames))})[1:-1]
