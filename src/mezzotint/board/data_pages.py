"""The page Data: samples as the model will see them, filters, histograms, problems, near duplicates."""

from __future__ import annotations

import io
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from PIL import Image
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response

from mezzotint.board.pages import Pages
from mezzotint.board.reading.data_sets import DataSet, Opening
from mezzotint.board.reading.places import OutOfPlace, inside
from mezzotint.board.reading.tails import shown
from mezzotint.data.catalogue import likeness, thumbnails
from mezzotint.data.catalogue.likeness import Looks
from mezzotint.errors import DatasetError, MezzotintError
from mezzotint.recipe.reading.read import located, read, read_text
from mezzotint.recipe.recipe import Recipe

ON_A_PAGE = 60
MOST_COMPARED = 20_000
"""Samples among which near duplicates are looked for."""

_SHOWN = 200
_SOON = 0.25
"""Seconds that a page waits for a data set that may be open at once."""


@dataclass(eq=False)
class DataPages:
    """The page Data over the same places. any_folder: whether data of runs are shown wherever they lie (`--data`)."""

    pages: Pages
    any_folder: bool = False
    _open: dict[str, Opening] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def data(self, request: Request) -> Response:
        """The page. Without a data set it lists those of the runs."""
        name = _name(request)
        if not name:
            return self.pages.html("data.html", here="data", state="choose", choices=self._choices(), name="", query="")
        facts: dict[str, Any] = {"here": "data", "name": name, "query": _query(request), "choices": []}
        try:
            opening = self._opening(request)
        except MezzotintError as error:
            return self.pages.html("data.html", 409, state="error", error=str(error), **facts)
        if not opening.wait(_SOON):
            return self.pages.html("data.html", state="opening", done=opening.done, total=opening.total, **facts)
        if opening.data is None:
            return self.pages.html("data.html", 409, state="error", error=str(opening.error), **facts)
        facts |= self._shown(opening.data, request)
        return self.pages.html("data.html", state="open", **facts)

    def _shown(self, data: DataSet, request: Request) -> dict[str, Any]:
        query = request.query_params
        chosen = {word: query.get(word, "") for word in ("bucket", "in", "problem", "text")}
        rows = data.rows(
            bucket=chosen["bucket"], folder=chosen["in"], problem=chosen["problem"], text=chosen["text"].strip()
        )
        epoch, number, page = (_whole(query.get(word, "")) for word in ("epoch", "visit", "page"))
        last = max(0, (len(rows) - 1) // ON_A_PAGE)
        page = min(page, last)
        here = rows[page * ON_A_PAGE : (page + 1) * ON_A_PAGE].tolist()
        histograms = data.histograms()
        return {
            "samples": [data.sample(row, epoch=epoch, number=number) for row in here],
            "count": len(rows), "all": len(data.catalogue), "page": page, "last": last, "epoch": epoch, "visit": number,
            "chosen": chosen, "summary": data.summary(), "histograms": histograms, "folders": data.folders(),
            "buckets": [label for label, _ in histograms[0]["bars"]],
            "roots": [shown(str(root)) for root in data.catalogue.roots],
            "is_counted": self._opening(request).is_counted,
        }  # fmt: skip

    def thumbnail(self, request: Request) -> Response:
        """A small copy of a sample's picture."""
        data = self._opened(request)
        row = _whole(request.query_params.get("row", ""))
        if row >= len(data.catalogue):
            raise OutOfPlace("row")
        content = thumbnails.thumbnail(data.catalogue, row, data.settings)
        if content is None:
            return PlainTextResponse("This picture cannot be read any more.\n", 404)
        return Response(content, media_type="image/webp", headers={"cache-control": "private, max-age=3600"})

    def state(self, request: Request) -> Response:
        """How far the data set is opened."""
        opening = self._opening(request)
        ready = opening.wait(0)
        return JSONResponse(
            {"ready": ready, "done": opening.done, "total": opening.total, "counted": opening.is_counted}
        )

    def histograms(self, request: Request) -> Response:
        """The histograms, as far as they are counted."""
        facts = {"histograms": self._opened(request).histograms(), "query": _query(request)}
        return self.pages.html("_histograms.html", **facts)

    def near(self, request: Request) -> Response:
        """Pairs of pictures that look alike. Asking begins the look, which goes on in a thread."""
        opening, data = self._opening(request), self._opened(request)
        likeness.require_library()
        total = min(MOST_COMPARED, len(data.catalogue))
        if not opening.looking and opening.pairs is None:
            opening.looking = True
            threading.Thread(target=_look, args=(opening, data, total), daemon=True).start()
        if opening.pairs is None:
            return JSONResponse({"ready": False, "done": opening.looked_at, "total": total})
        pairs = [
            {"rows": [a, b], "keys": [shown(data.catalogue.key(a)), shown(data.catalogue.key(b))], "apart": apart}
            for a, b, apart in opening.pairs
        ]
        return JSONResponse({"ready": True, "pairs": pairs, "total": total, "all": len(data.catalogue)})

    def nearest(self, request: Request) -> Response:
        """The training pictures that look most like a picture of the run; after `near` has looked."""
        opening, data = self._opening(request), self._opened(request)
        path = inside(self.pages.places.run(request.query_params.get("run", "")), request.query_params.get("file", ""))
        likeness.require_library()
        total = min(MOST_COMPARED, len(data.catalogue))
        if data.looks is None:
            if not opening.looking:
                opening.looking = True
                threading.Thread(target=_look, args=(opening, data, total), daemon=True).start()
            return JSONResponse({"ready": False, "done": opening.looked_at, "total": total})
        own = thumbnails.shades_at(path)
        if own is None:
            return PlainTextResponse("This file is no picture that can be read.\n", 415)
        near = likeness.nearest(data.looks.shades, own)
        return JSONResponse(
            {
                "ready": True,
                "near": [{"row": row, "key": shown(data.catalogue.key(row)), "apart": round(d, 2)} for row, d in near],
            }
        )

    # --- opening ---

    def _opened(self, request: Request) -> DataSet:
        opening = self._opening(request)
        if not opening.wait(60) or opening.data is None:
            raise OutOfPlace("data")
        return opening.data

    def _opening(self, request: Request) -> Opening:
        """The data set that an address names, opened at its first use. Raises MezzotintError for a recipe that does not
        read, DatasetError E1948 for data that lie elsewhere."""
        query = request.query_params
        run = self.pages.places.run(query["run"]) if "run" in query else None
        folder = None if run is not None else self.pages.places.path(query.get("folder", ""))
        resolution = query.get("resolution", "")
        key = f"{run or ''}|{folder or ''}|{resolution}"
        with self._lock:
            if key in self._open:
                return self._open[key]
        recipe = _recipe_of(run, folder, resolution)
        self._require_inside(recipe)
        with self._lock:
            opening = self._open.setdefault(key, Opening())
            if opening.data is None and opening.error is None and not opening.looking and opening.total == 0:
                opening.total = -1
                opening.start(recipe, run)
            while len(self._open) > 6:
                self._open.pop(next(iter(self._open)))
        return opening

    def _require_inside(self, recipe: Recipe) -> None:
        places = self.pages.places
        for path in recipe.data.path:
            if not self.any_folder and places.name_of(path) is None:
                raise DatasetError(
                    f"{path}: lies below no folder of this page; start it with --data, or name the folder", code="E1948"
                )

    def _choices(self) -> list[tuple[str, str]]:
        """(run, data.path) of the runs that there are."""
        return [(row.name, row.path.name) for row in self.pages.rows()[:200]]


def _recipe_of(run: Path | None, folder: Path | None, resolution: str) -> Recipe:
    words = [f"data.resolution={resolution}"] if resolution.isdecimal() else []
    if run is not None:
        return located(read(run / "recipe.yaml", words))
    import json

    return located(read_text(f"schema: 1\ndata: {{path: {json.dumps(str(folder))}}}\n", "data", words))


def _look(opening: Opening, data: DataSet, total: int) -> None:
    """Looks at the first pictures of a data set, for `near` and `nearest`."""
    looks = Looks.empty(total)
    for row in range(total):
        content = thumbnails.thumbnail(data.catalogue, row, data.settings)
        if content is not None:
            with Image.open(io.BytesIO(content)) as image:
                looks.put(row, image.convert("RGB"))
        opening.looked_at = row + 1
    opening.pairs = likeness.near_pairs(looks, _SHOWN)
    data.looks = looks


def _name(request: Request) -> str:
    return request.query_params.get("run") or request.query_params.get("folder") or ""


def _query(request: Request) -> str:
    """The part of an address that names the data set."""
    from urllib.parse import urlencode

    kept = [
        (word, request.query_params[word]) for word in ("run", "folder", "resolution") if word in request.query_params
    ]
    return urlencode(kept)


def _whole(text: str) -> int:
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else 0
