"""An entry of the corpus, and the corpus as files with a manifest."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

SEED = 15
"""Of everything that is drawn for a file. Two corpora of one seed are the same to the byte."""

Make = Callable[[Path], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A hostile file, or a folder of them.

    id: READER-FAULT. reader: of `doors.DOORS`. fault: what is wrong. row: of faults.tsv. make: writes it into a folder.
    expected: `ok`, it is read; `S`, skipped by its name, and what lies beside it is read; `E2`, refused with status 2
    and a sentence with a code that names the file. code: of that sentence. says: words of the sentence, or of the
    reason. names: what the sentence must name. seconds: of computing that it may take. megabytes: of memory. is_quick:
    it is part of `make test`.
    """

    id: str
    reader: str
    fault: str
    row: str
    make: Make
    expected: str
    code: str = ""
    says: str = ""
    names: str = ""
    seconds: float = 2.0
    megabytes: int = 400
    is_quick: bool = False


def write(folder: Path, entries: Iterable[Entry]) -> None:
    """Writes entries as files, each in a folder of its own, and `manifest.jsonl`, a line each."""
    lines = []
    for entry in entries:
        place = folder / entry.id
        place.mkdir(parents=True)
        entry.make(place)
        facts = {name: getattr(entry, name) for name in Entry.__slots__ if name != "make"}
        lines.append(json.dumps(facts) + "\n")
    (folder / "manifest.jsonl").write_text("".join(lines), "utf-8")


Content = bytes | str | Callable[[], bytes | str]
"""What a file holds, or what makes it when it is asked for: entries are many, and some are large."""


def file(name: str, content: Content) -> Make:
    """Makes one file."""

    def make(folder: Path) -> None:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        body = content() if callable(content) else content
        path.write_bytes(body.encode("utf-8", "surrogateescape") if isinstance(body, str) else body)

    return make


def all_of(*makes: Make) -> Make:
    """Makes one after the other."""

    def make(folder: Path) -> None:
        for one in makes:
            one(folder)

    return make


def named(entries: Sequence[Entry], ids: Iterable[str]) -> list[Entry]:
    """The entries of some ids."""
    return [entry for entry in entries if entry.id in set(ids)]
