"""Changes of a run's tags, notes and archived mark (`reading.notes`)."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from mezzotint import durable
from mezzotint.board.reading import notes
from mezzotint.board.reading.notes import RunNotes
from mezzotint.errors import RecipeError

_CHANGING = threading.Lock()


@dataclass(frozen=True, slots=True)
class NotesChange:
    """add, remove: tags. is_archived, text: the new values, None to keep them. text_before: the notes that the text
    was edited from."""

    add: Sequence[str] = ()
    remove: Sequence[str] = ()
    is_archived: bool | None = None
    text: str | None = None
    text_before: str = ""


def change_notes(run: Path, change: NotesChange) -> RunNotes:
    """Changes the notes of a run and returns them. Raises RecipeError: E1956 for tags or notes that are too long or too
    many, or a file that cannot be read; E1957 if the text has changed since it was read for editing, and then nothing
    is saved. StorageError."""
    with _CHANGING:
        before = notes.read_notes(run)
        after = _apply(run, before, change)
        if after != before:
            durable.write_json(run / notes.FILE, after.as_json())
    return after


def refuse_change(run: Path, change: NotesChange) -> None:
    """Raises as `change_notes`, without changing anything."""
    _apply(run, notes.read_notes(run), change)


def _apply(run: Path, before: RunNotes, change: NotesChange) -> RunNotes:
    if before.problem:
        raise RecipeError(f"{run / notes.FILE}: {before.problem}; repair it or move it away", code="E1956")
    try:
        removed = {tag.casefold() for tag in notes.parse_tags(change.remove)}
        tags = notes.parse_tags([*(tag for tag in before.tags if tag.casefold() not in removed), *change.add])
        text = before.text if change.text is None else notes.parse_text(change.text)
        edited_from = before.text if change.text is None else notes.parse_text(change.text_before)
    except ValueError as error:
        raise RecipeError(f"{run.name}: {error}", code="E1956") from None
    if before.text not in (edited_from, text):
        raise RecipeError(
            f"{run.name}: the notes were changed in another window meanwhile, so yours are not saved yet; compare "
            "them, then save again",
            code="E1957",
        )
    is_archived = before.is_archived if change.is_archived is None else change.is_archived
    return replace(before, tags=tags, text=text, is_archived=is_archived)
