"""The page Data: samples as the model sees them, with filters, histograms and problems."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import numpy as np
from numpy.typing import NDArray
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from mezzotint.board.acting.edits import DataEdits
from mezzotint.board.answers import JsonAnswer
from mezzotint.board.formatting import parse_whole
from mezzotint.board.pages import Pages, image_answer
from mezzotint.board.reading import data_sets
from mezzotint.board.reading.data_sets import DataSet, Opening
from mezzotint.board.reading.root_folders import OutsideFolders, inside
from mezzotint.board.reading.tails import make_printable
from mezzotint.data.catalogue import thumbnails
from mezzotint.data.catalogue.catalogue import Catalogue
from mezzotint.errors import DatasetError, MezzotintError
from mezzotint.settings.reading.read import read, resolve_paths
from mezzotint.settings.recipe import Recipe
from mezzotint.settings.sections.conditions import in_folders
from mezzotint.settings.sections.data import DataSettings

ON_A_PAGE = 60
FILTERS = {"bucket": "bucket", "in": "folder", "problem": "problem", "text": "text"}
"""Filters: the word in the query, and the argument of `DataSet.rows`."""

_WAIT_SECONDS = 0.25
"""Seconds that a request waits for a data set before it answers with the progress page."""


@dataclass(eq=False)
class DataPages:
    """Handlers of the page Data. any_folder: show the data of runs outside of the page's folders, too (`--data`)."""

    pages: Pages
    any_folder: bool = False
    _open: dict[str, Opening] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def data(self, request: Request) -> Response:
        """The page. Without a data set in the query, the list of the runs' data sets."""
        name = _name(request)
        if not name:
            board_folders = [(str(n), make_printable(str(path))) for n, path in enumerate(self.pages.roots.folders)]
            listed = {"choices": self._choices(), "board_folders": board_folders}
            return self.pages.html("data.html", current_page="data", state="choose", name="", query="", **listed)
        facts: dict[str, Any] = {"current_page": "data", "name": name, "query": _query(request)}
        try:
            opening = self._find_opening(request)
        except MezzotintError as error:
            return self.pages.html("data.html", 409, state="error", error=str(error), **facts)
        if not opening.wait(_WAIT_SECONDS):
            return self.pages.html("data.html", state="opening", done=opening.done, total=opening.total, **facts)
        if opening.data is None:
            return self.pages.html("data.html", 409, state="error", error=str(opening.error), **facts)
        facts |= self._page_values(opening.data, request)
        return self.pages.html("data.html", state="open", **facts)

    def gallery(self, request: Request) -> Response:
        """The samples of the page."""
        data = self.wait_for_data(request)
        return self.pages.html("_gallery.html", query=_query(request), **self._page_values(data, request))

    def _page_values(self, data: DataSet, request: Request) -> dict[str, Any]:
        query = request.query_params
        chosen = {word: query.get(word, "") for word in FILTERS}
        rows = filtered_rows(data, query)
        epoch, number, page = (parse_whole(query.get(word, "")) for word in ("epoch", "visit", "page"))
        last = max(0, (len(rows) - 1) // ON_A_PAGE)
        page = min(page, last)
        shown_rows = rows[page * ON_A_PAGE : (page + 1) * ON_A_PAGE].tolist()
        histograms = data.histograms()
        own = urlencode({word: text for word, text in chosen.items() if text} | {"epoch": epoch, "visit": number})
        return {
            "samples": [data.sample(row, epoch=epoch, number=number) for row in shown_rows],
            "count": len(rows), "all": len(data.catalogue), "page": page, "last": last, "epoch": epoch, "visit": number,
            "chosen": chosen, "summary": data.summary(), "histograms": histograms, "folders": data.folders(),
            "buckets": [label for label, _ in histograms[0]["bars"]],
            "roots": [make_printable(str(root)) for root in data.catalogue.roots],
            "is_counted": self._find_opening(request).is_counted, "view": f"{_query(request)}&{own}",
            "running": [name for name, _ in self.runs_on(data.catalogue.roots)], **self._edit_values(data),
        }  # fmt: skip

    def _edit_values(self, data: DataSet) -> dict[str, Any]:
        """Whether the data can be edited, or why not; and what can be undone."""
        if self.pages.read_only:
            return {"is_editable": False, "why_not": ""}
        try:
            edits = DataEdits.of(data, self.pages.roots)
            return {"is_editable": True, "undo": edits.undoable(), "redo": edits.redoable()}
        except DatasetError as error:
            return {"is_editable": False, "why_not": str(error)}

    def runs_on(self, roots: Sequence[Path]) -> list[tuple[str, bool]]:
        """The names of the running runs that train on folders, and whether each reads mask files."""
        runs = []
        for row in self.pages.rows():
            if row.status.state in ("running", "starting"):
                with suppress(MezzotintError, OSError, OutsideFolders):
                    settings = _recipe_of(row.path, None, "").data
                    paths = [Path(os.path.realpath(path)) for path in settings.paths]
                    if any(one in (root, *root.parents) or root in one.parents for one in paths for root in roots):
                        reads_masks = any(one.settings.mask.source == "files" for one in settings.image_sets())
                        runs.append((make_printable(self.pages.roots.label(row.name)), reads_masks))
        return runs

    def thumbnail(self, request: Request) -> Response:
        """A thumbnail of a sample."""
        return _webp(thumbnails.thumbnail(*self._image(request)))

    def state(self, request: Request) -> Response:
        """How much of the data set has been read."""
        opening = self._find_opening(request)
        ready = opening.wait(0)
        return JsonAnswer({"ready": ready, "done": opening.done, "total": opening.total, "counted": opening.is_counted})

    def histograms(self, request: Request) -> Response:
        """The histograms, with token counts once they are available."""
        facts = {"histograms": self.wait_for_data(request).histograms(), "query": _query(request)}
        return self.pages.html("_histograms.html", **facts)

    def image(self, request: Request) -> Response:
        """A sample at viewing size: a copy of an image; a clip's own file if it is in a folder of the page. With
        `whole` always a picture, without its crop and rotation."""
        catalogue, row, settings = self._image(request)
        path, is_whole = catalogue.path(row), "whole" in request.query_params
        if (
            not is_whole
            and path.suffix.lower() == ".mp4"
            and path.is_file()
            and self.pages.roots.name_of(path) is not None
        ):
            return image_answer(path, request)
        return _webp(thumbnails.preview_image(catalogue, row, settings, is_whole=is_whole))

    def _image(self, request: Request) -> tuple[Catalogue, int, DataSettings]:
        """The catalogue and row of a sample, or with `condition` of one of its condition images."""
        data, row = self.wait_for_data(request), parse_whole(request.query_params.get("row", ""))
        if row >= len(data.catalogue):
            raise OutsideFolders("row")
        name = request.query_params.get("condition", "")
        if not name:
            return data.catalogue, row, data.settings
        paired = data.catalogue.conditions.get(name)
        if paired is None or (image := int(paired.rows[row])) < 0:
            raise OutsideFolders("condition")
        return paired.images, image, data.settings

    # --- opening ---

    def wait_for_data(self, request: Request) -> DataSet:
        opening = self._find_opening(request)
        if opening.wait(60) and opening.error is not None:
            raise opening.error
        if opening.data is None:
            raise OutsideFolders("data")
        return opening.data

    def _find_opening(self, request: Request) -> Opening:
        """The data set of a request, opened at first use. Raises MezzotintError for an invalid recipe, DatasetError
        E1948 for data outside of the page's folders."""
        query = request.query_params
        run = self.pages.roots.run(query["run"]) if "run" in query else None
        folder = None if run is not None else self._folder(query.get("folder", ""))
        resolution = query.get("resolution", "")
        key = f"{run or ''}|{folder or ''}|{resolution}"
        with self._lock:
            if key in self._open and not self._open[key].is_old():
                return self._open[key]
            self._open.pop(key, None)
        recipe = _recipe_of(run, folder, resolution)
        self._require_inside(recipe)
        with self._lock:
            opening = self._open.setdefault(key, Opening())
            if opening.data is None and opening.error is None and opening.total == 0:
                opening.total = -1
                opening.start(recipe, run)
            while len(self._open) > 6:
                self._open.pop(next(iter(self._open)))
        return opening

    def _folder(self, text: str) -> Path:
        """A folder by its name, or by an absolute path inside a folder of the page. Raises OutsideFolders."""
        roots = self.pages.roots
        name = roots.name_of(Path(text)) if text.startswith("/") and "\0" not in text else text
        return roots.path("" if name is None else name)

    def _require_inside(self, recipe: Recipe) -> None:
        roots = self.pages.roots
        conditions = (path for one in recipe.data.image_sets() for path in in_folders(one.settings.conditions))
        for path in (*recipe.data.paths, *conditions):
            if not self.any_folder and roots.name_of(path) is None:
                raise DatasetError(
                    f"{path} is outside of the folders of this page; start the page with --data, or with that folder",
                    code="E1948",
                )

    def _choices(self) -> list[tuple[str, str]]:
        """(name, folder name) of the newest 200 runs."""
        return [(row.name, row.path.name) for row in self.pages.rows()[:200]]


def _recipe_of(run: Path | None, folder: Path | None, resolution: str) -> Recipe:
    overrides = [f"data.resolution={resolution}"] if parse_whole(resolution) else []
    if run is not None:
        return resolve_paths(read(inside(run, "recipe.yaml"), overrides))
    assert folder is not None
    return data_sets.recipe_of(folder, overrides)


def filtered_rows(data: DataSet, query: Mapping[str, str]) -> NDArray[np.int64]:
    """The rows that pass the filters of a query."""
    words = {name: query.get(word, "") for word, name in FILTERS.items()}
    return data.rows(**words | {"text": words["text"].strip()})


def _webp(content: bytes | None) -> Response:
    if content is None:
        return PlainTextResponse("This image is no longer readable.\n", 404)
    return Response(content, media_type="image/webp", headers={"cache-control": "private, max-age=3600"})


def _name(request: Request) -> str:
    return request.query_params.get("run") or request.query_params.get("folder") or ""


def _query(request: Request) -> str:
    """The query string that identifies the data set."""
    pairs = [
        (word, request.query_params[word]) for word in ("run", "folder", "resolution") if word in request.query_params
    ]
    return urlencode(pairs)
