"""What became of the data set's files, for programs: one line of JSON for each file."""

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
_VERSION = 1  # of the lines: what is kept of another is written anew


def write(
    catalogue: Catalogue, folder: Path, settings: DataSettings, lost_tokens: Mapping[int, int] | None = None
) -> Path:  # fmt: skip
    """Writes `data_report.jsonl` into a run folder: for each file its id, its class (used, converted, skipped,
    noted), the reason and what was converted; of a sample also size, bucket and SHA-256, and what is odd about it
    (`_oddities`); then those of pictures beside clips, in the set `stills`. lost_tokens: of captions that are cut, by
    row. The lines of a large data set are kept in its memo: another start copies them. Raises StorageError."""
    path = folder / FILE
    with durable.replacing(path) as aside:
        if len(catalogue) < catalogues.MANY:
            _write_lines(aside, catalogue, settings, lost_tokens or {})
            return path
        beside = catalogue.stills.fingerprint if catalogue.stills is not None else ""
        key = (_VERSION, catalogue.fingerprint, beside, catalogue.report, settings.model_dump_json(), lost_tokens)
        with open(aside, "wb") as file:
            is_known = catalogue.memo.copy_to(file, "report", key)
        if not is_known:
            _write_lines(aside, catalogue, settings, lost_tokens or {})
            with open(aside, "rb") as content:
                catalogue.memo.put("report", key, content, keep=1)
    return path


def _write_lines(
    path: Path, catalogue: Catalogue, settings: DataSettings, lost_tokens: Mapping[int, int]
) -> None:  # fmt: skip
    with open(path, "w", encoding="ascii") as file:
        file.writelines(f"{{{line}\n" for line in _lines(catalogue, settings, lost_tokens))
        if catalogue.stills is not None:
            stills = _lines(catalogue.stills, None, {})
            file.writelines(f'{{"set": "stills", {line}\n' for line in stills)


def _oddities(
    catalogue: Catalogue, settings: DataSettings | None, lost_tokens: Mapping[int, int]
) -> dict[int, dict[str, Any]]:  # fmt: skip
    """What is said of some rows only: `enlarged` to the bucket, `seen` the share that is not cut away where that is
    less than half, `same_as` another file, `captions` where there are several, `empty_caption`, `lost_tokens`."""
    oddities: dict[int, dict[str, Any]] = {}
    rows = np.arange(len(catalogue))
    if settings is not None:
        sizes, placed = buckets.table(settings), catalogue.buckets_of(rows, settings)
        wide, high = (np.asarray([getattr(size, side) for size in sizes])[placed] for side in ("width", "height"))
        for row in np.flatnonzero((catalogue.width < wide) | (catalogue.height < high)).tolist():
            oddities.setdefault(row, {})["enlarged"] = True
        shares = images.seen_shares(catalogue, rows, settings)
        for row in np.flatnonzero(shares < images.MOSTLY_CUT).tolist():
            oddities.setdefault(row, {})["seen"] = round(float(shares[row]), 4)
    for row, first in images.find_copies(catalogue).items():
        oddities.setdefault(row, {})["same_as"] = catalogue.key(first)
    counts = catalogue.caption_counts()
    for row in np.flatnonzero(counts > 1).tolist():
        oddities.setdefault(row, {})["captions"] = int(counts[row])
    for row in catalogue.with_empty_captions().tolist():
        oddities.setdefault(row, {})["empty_caption"] = True
    for row, count in lost_tokens.items():
        oddities.setdefault(row, {})["lost_tokens"] = count
    return oddities


def _lines(catalogue: Catalogue, settings: DataSettings | None, lost_tokens: Mapping[int, int]) -> Iterator[str]:
    """Objects of JSON without their first brace. settings: None for pictures beside clips, which stand in many sizes.

    Of a sample, what many have alike is written once: a run over a million pictures waits for this."""
    odd, digests = _oddities(catalogue, settings, lost_tokens), catalogue.digest.tobytes().hex()
    columns: list[NDArray[Any]] = [catalogue.conversions, catalogue.width, catalogue.height, catalogue.frames]
    table = [""]
    if settings is not None:
        columns.append(catalogue.buckets_of(np.arange(len(catalogue)), settings))
        table = [f', "bucket": {json.dumps(str(size))}' for size in buckets.table(settings)]

    @cache
    def alike(flags: int, width: int, height: int, frames: int, bucket: int = 0) -> str:
        return f', {_done(flags)}, {_size(width, height, frames)}{table[bucket]}, "sha256": "'

    of_rows = map(alike, *(column.tolist() for column in columns))
    for row, (key, middle) in enumerate(zip(catalogue.keys(), of_rows, strict=True)):
        line = f'"id": {_as_json(key)}{middle}{digests[64 * row : 64 * row + 64]}"'
        yield f"{line}, {json.dumps(odd[row])[1:]}" if row in odd else line + "}"
    for files in (catalogue.report.skipped, catalogue.report.left_out):
        for path, reason in files:
            yield json.dumps({"id": path, "class": "skipped", "reason": reason})[1:]
    for path, reason in catalogue.report.notes:
        yield json.dumps({"id": path, "class": "noted", "reason": reason})[1:]


_as_json = json.encoder.encode_basestring_ascii  # what `json.dumps` does to a text, at once


def _done(flags: int) -> str:
    done = conversions_of(flags)
    return json.dumps({"class": "converted" if done else "used", "conversion": list(done)})[1:-1]


def _size(width: int, height: int, frames: int) -> str:
    return json.dumps({"size": str(Size(width, height, frames))})[1:-1]
