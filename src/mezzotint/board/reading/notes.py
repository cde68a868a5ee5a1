"""A run's tags, notes and archived mark: `notes.json` in its folder. Training neither reads nor writes it."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mezzotint import outside

FILE = "notes.json"
LONGEST_TEXT = 20_000
"""Most characters of a run's notes."""

LONGEST_TAG, MOST_TAGS = 40, 20
"""Most characters of a tag, and most tags of a run."""

_LARGEST = 200_000


@dataclass(frozen=True, slots=True)
class RunNotes:
    """problem: why the file cannot be read; "" if it can be, or does not exist."""

    tags: tuple[str, ...] = ()
    text: str = ""
    is_archived: bool = False
    problem: str = ""

    def as_json(self) -> dict[str, Any]:
        """The content of the file."""
        return {"tags": list(self.tags), "notes": self.text, "archived": self.is_archived}


def read_notes(run: Path) -> RunNotes:
    """The notes of a run. A file that is damaged, too large, or a link that leads out of the run gives `problem`."""
    try:
        value = outside.read_json(run / FILE, limit=_LARGEST, within=run)
    except FileNotFoundError:
        return RunNotes()
    except OSError as error:
        return RunNotes(problem=error.strerror or "it cannot be read")
    except ValueError as error:
        return RunNotes(problem=f"it is not JSON ({error})")
    try:
        return _parse(value)
    except ValueError as error:
        return RunNotes(problem=str(error))


def _parse(value: Any) -> RunNotes:
    if not isinstance(value, dict):
        raise ValueError("it is not a JSON object")
    tags, text, is_archived = value.get("tags", []), value.get("notes", ""), value.get("archived", False)
    if not isinstance(tags, list) or not all(isinstance(tag, str) for tag in tags):
        raise ValueError("tags is not a list of texts")
    if not isinstance(text, str) or not isinstance(is_archived, bool):
        raise ValueError("notes is not a text, or archived is not true or false")
    return RunNotes(parse_tags(tags), parse_text(text), is_archived)


def parse_tags(tags: Iterable[str]) -> tuple[str, ...]:
    """The tags with single spaces, each once; upper and lower case count as equal. Raises ValueError for a tag that is
    empty, too long, or has a comma or unprintable characters, and for too many."""
    by_key: dict[str, str] = {}
    for text in tags:
        tag = " ".join(unicodedata.normalize("NFC", text).split())
        if not 0 < len(tag) <= LONGEST_TAG:
            raise ValueError(f"a tag has 1 to {LONGEST_TAG} characters, got {len(tag)}")
        if "," in tag or not tag.isprintable():
            raise ValueError(f"a tag has no commas and only printable characters, got {tag!a}")
        by_key.setdefault(tag.casefold(), tag)
    if len(by_key) > MOST_TAGS:
        raise ValueError(f"a run has at most {MOST_TAGS} tags, got {len(by_key)}")
    return tuple(by_key.values())


def parse_text(text: str) -> str:
    """Notes with `\\n` line ends, without space at their end. Raises ValueError for too long ones."""
    text = text.replace("\r\n", "\n").replace("\r", "\n").rstrip()
    if len(text) > LONGEST_TEXT:
        raise ValueError(f"notes have at most {LONGEST_TEXT:,} characters, got {len(text):,}")
    return text
