"""The page Trash, and what the list of runs does with selected runs: tags, notes, archive, delete, restore."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from mezzotint.board.acting import notes, trash
from mezzotint.board.acting.notes import NotesChange
from mezzotint.board.answers import JsonAnswer, read_body
from mezzotint.board.pages import Pages
from mezzotint.board.reading import runs
from mezzotint.board.reading.root_folders import TRASH, OutsideFolders
from mezzotint.errors import RecipeError
from mezzotint.settings.counting import format_count


@dataclass(frozen=True, slots=True)
class TrashRow:
    """A run in the trash. command: restores it."""

    name: str
    path: Path
    status: runs.RunStatus
    command: str


@dataclass(eq=False)
class RunPages:
    """Handlers of the page Trash and of actions on selected runs."""

    pages: Pages

    def trash(self, request: Request) -> Response:
        """The runs in the trash, or only their rows."""
        name = "_trash.html" if "part" in request.query_params else "trash.html"
        roots = self.pages.roots
        return self.pages.html(
            name, rows=[row for row in map(self._row, roots.trashed()) if row is not None],
            folders=[folder / TRASH for folder in roots.folders], current_page="runs",
        )  # fmt: skip

    def _row(self, name: str) -> TrashRow | None:
        try:
            path = self.pages.roots.run(name)
        except OutsideFolders:
            return None
        target = trash.place_outside(path, self.pages.roots)
        return TrashRow(name, path, self.pages.status(path), trash.move_command(path, target))

    async def change_notes(self, request: Request) -> Response:
        """Changes the notes of runs: {runs, add, remove, archived, text, text_before}; a text is that of one run.
        Returns {message}. Nothing is changed if one of them refuses."""
        return await self._act(request, self._change_notes)

    async def delete(self, request: Request) -> Response:
        """Moves runs to the trash: {runs}. Returns {message}. Nothing is moved if one of them cannot be."""
        return await self._act(request, self._delete)

    async def restore(self, request: Request) -> Response:
        """Moves runs out of the trash: {runs}. Returns {message}."""
        return await self._act(request, self._restore)

    async def _act(self, request: Request, action: Callable[[list[Path], dict[str, Any]], str]) -> Response:
        value = await read_body(request)
        paths = list(dict.fromkeys(map(self.pages.roots.run, _texts(value, "runs"))))
        if not paths:
            raise OutsideFolders("no run is selected")
        return JsonAnswer({"message": await run_in_threadpool(action, paths, value)})

    def _change_notes(self, paths: list[Path], value: dict[str, Any]) -> str:
        text, is_archived = value.get("text"), value.get("archived")
        change = NotesChange(
            _texts(value, "add"), _texts(value, "remove"), is_archived if isinstance(is_archived, bool) else None,
            text if isinstance(text, str) and len(paths) == 1 else None, str(value.get("text_before", "")),
        )  # fmt: skip
        for path in paths:
            if self.pages.roots.is_trashed(path):
                raise RecipeError(f"{path.name} is in the trash; restore it first", code="E1956")
            notes.refuse_change(path, change)
        for path in paths:
            notes.change_notes(path, change)
        return f"Saved for {_name(paths)}"

    def _delete(self, paths: list[Path], value: dict[str, Any]) -> str:
        pages = self.pages
        for path in paths:
            state = "starting" if pages.started.is_running(path) else ""
            trash.refuse_move(path, state or pages.status(path).state, pages.roots, pages.queue)
        try:
            moved = [trash.move_to_trash(path, pages.roots) for path in paths]
        finally:
            pages.roots.forget()
        return f"{_name(paths)} moved to {moved[0] if len(moved) == 1 else TRASH}; the page Trash restores it"

    def _restore(self, paths: list[Path], value: dict[str, Any]) -> str:
        try:
            moved = [trash.restore(path, self.pages.roots) for path in paths]
        finally:
            self.pages.roots.forget()
        return f"{_name(moved)} restored to {moved[0].parent}"


def _name(paths: list[Path]) -> str:
    return paths[0].name if len(paths) == 1 else format_count(len(paths), "run")


def _texts(value: dict[str, Any], key: str) -> list[str]:
    """The texts of a list in a request; empty for anything else."""
    texts = value.get(key)
    return [text for text in texts if isinstance(text, str)] if isinstance(texts, list) else []
