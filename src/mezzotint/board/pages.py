"""The pages Runs, Run and Compare, and the parts of them that are asked for again when something has changed."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib import resources
from pathlib import Path
from typing import Any
from urllib.parse import unquote_plus

import jinja2
from markupsafe import Markup, escape
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse

from mezzotint import __version__, outside
from mezzotint.board import curves, live, words
from mezzotint.board.acting import actions
from mezzotint.board.answers import HtmlAnswer, JsonAnswer, body_of
from mezzotint.board.reading import pictures, runs, tails, values
from mezzotint.board.reading.metrics import Shelf
from mezzotint.board.reading.places import OutOfPlace, Places, inside
from mezzotint.errors import MezzotintError
from mezzotint.reports import html_pages
from mezzotint.settings import counting

PAGES = [("/data", "Data", "data"), ("/recipe", "Recipe", "recipe"), ("/draw", "Generate", "draw")]
"""Address, name and key of each page besides Runs."""

_AT_ONCE = 1 << 18
"""Bytes of a file that are sent at a time."""

PARTS = ("facts", "output", "stored", "description", "settings", "events", "log", "card")
"""What a run's page is made of, besides curves and pictures."""

MOST_COMPARED = 8
"""Runs over each other."""

_WIDTH = 1200


@dataclass(slots=True)
class Rows:
    """A line of the list of runs."""

    name: str
    path: Path
    standing: runs.Standing
    picture: str


@dataclass(eq=False)
class Pages:
    """What the pages are made of. read_only: whether actions are left out."""

    places: Places
    read_only: bool = False
    shelf: Shelf = field(default_factory=Shelf)
    started: actions.Started = field(default_factory=actions.Started)

    @cached_property
    def templates(self) -> jinja2.Environment:
        """Templates that write every value as text."""
        environment = html_pages.templates("mezzotint.board")
        environment.filters |= {
            "size": counting.size, "duration": words.duration, "number": words.number, "moment": words.moment,
            "with_moments": words.with_moments,
            "unquote": unquote_plus, "count": words.count, "shown": tails.shown, "json": in_script, "coded": coded,
            "label": lambda name: tails.shown(self.places.label(name)),
        }  # fmt: skip
        environment.globals |= {
            "version": __version__,
            "read_only": self.read_only,
            "report": False,
            "static": "/static/",
            "pages_besides": PAGES,
            "most_stored": runs.MOST_STORED,
        }
        return environment

    def html(self, template: str, status: int = 200, /, **facts: Any) -> HtmlAnswer:
        """A template with its values."""
        return HtmlAnswer(self.templates.get_template(template).render(facts), status)

    at_end: list[Callable[[], None]] = field(default_factory=list)

    def close(self) -> None:
        """Lets go of what was started for the page alone; runs go on."""
        for end in self.at_end:
            end()

    # --- Runs ---

    def rows(self) -> list[Rows]:
        """All runs, the one that changed last first."""
        rows = []
        for name in self.places.runs():
            try:
                path = self.places.run(name)
            except OutOfPlace:
                continue  # it went since the folders were looked at
            newest = pictures.newest(path)
            picture = "" if newest is None else newest.relative_to(path).as_posix()
            rows.append(Rows(name, path, self.standing(path), picture))
        return sorted(rows, key=lambda row: row.standing.changed, reverse=True)

    def standing(self, path: Path) -> runs.Standing:
        """How a run stands. One that the page has started is starting before it has its lock."""
        standing = runs.standing(path)
        if standing.state in ("stopped", "killed", "failed", "diverged") and self.started.is_running(path):
            return replace(standing, state="starting")
        return standing

    def runs(self, request: Request) -> Response:
        """The list of runs, or its rows alone."""
        name = "_runs.html" if "part" in request.query_params else "runs.html"
        return self.html(name, rows=self.rows(), folders=self.places.folders, is_cut=self.places.is_cut, here="runs")

    def compare(self, request: Request) -> Response:
        """Several runs side by side."""
        names, paths = self._several(request)
        recipes = {name: values.tree(path / "recipe.yaml") for name, path in zip(names, paths, strict=True)}
        drawn = {
            name: pictures.previews(path).as_json() | {"label": self.places.label(name)}
            for name, path in zip(names, paths, strict=True)
        }
        rows = [(name, path, self.standing(path)) for name, path in zip(names, paths, strict=True)]
        return self.html(
            "compare.html", rows=rows, names=names, differences=values.differences(recipes), drawn=drawn, here="runs"
        )

    def compared_curves(self, request: Request) -> Response:
        """The curves of several runs."""
        names, paths = self._several(request)
        tables = {
            self.places.label(name): self.shelf.metrics(path).table for name, path in zip(names, paths, strict=True)
        }
        return JsonAnswer(curves.over_each_other(tables, **_view(request)))

    def _several(self, request: Request) -> tuple[list[str], list[Path]]:
        names = list(dict.fromkeys(request.query_params.getlist("run")))[:MOST_COMPARED]
        return names, [self.places.run(name) for name in names]

    # --- Run ---

    def run(self, request: Request) -> Response:
        """The page of a run."""
        name = request.query_params.get("run", "")
        path = self.places.run(name)
        drawn = pictures.previews(path).as_json()
        return self.html("run.html", name=name, path=path, drawn=drawn, here="runs", **self.facts(path))

    def facts(self, path: Path, *parts: str) -> dict[str, Any]:
        """What stands in some parts of a run's page, in all without any named."""
        facts: dict[str, Any] = {}
        for part in parts or PARTS:
            facts |= self._of_part(path, part)
        return facts

    def _of_part(self, path: Path, part: str) -> dict[str, Any]:
        match part:
            case "facts":
                standing = self.standing(path)
                is_starting = (
                    standing.state == "starting"
                )  # it may not have its lock yet, and is not offered a second start
                offered = [] if self.read_only or is_starting else actions.offered(path)
                return {"standing": standing, "meaning": standing.meaning, "offered": offered}
            case "output":
                is_shown = self.standing(path).state in ("starting", "failed") or self.started.has_failed(path)
                return {"output": actions.last_output(path) if is_shown else ""}
            case "stored":
                stored = {"checkpoints": runs.checkpoints(path), "exports": runs.exports(path)}
                return {**stored, "going_on": runs.going_on(path) if (path / "recipe.yaml").is_file() else ""}
            case "description":
                return {"description": runs.description(runs.history(path))}
            case "settings":
                return {"settings": values.effective(path)}
            case "events":
                return {"events": list(reversed(runs.history(path)))[:500], "event_text": _event_text}
            case "log":
                return {"log": tails.tail(path / "run.log")}
            case "card":
                return {"card": runs.card(path, runs.history(path))}
            case _:
                raise OutOfPlace(part)

    def part(self, request: Request) -> Response:
        """A part of a run's page, as it is now."""
        name, part = request.query_params.get("run", ""), request.path_params["part"]
        path = self.places.run(name)
        return self.html(f"_{part}.html", name=name, path=path, **self.facts(path, part))

    def run_curves(self, request: Request) -> Response:
        """The charts of a run."""
        path = self.places.run(request.query_params.get("run", ""))
        return JsonAnswer(curves.charts(self.shelf.metrics(path), path, **_view(request)))

    def previews(self, request: Request) -> Response:
        """Which pictures a run has."""
        return JsonAnswer(pictures.previews(self.places.run(request.query_params.get("run", ""))).as_json())

    def picture_facts(self, request: Request) -> Response:
        """How a picture was drawn."""
        return JsonAnswer(pictures.facts(self._file(request)))

    async def events(self, request: Request) -> Response:
        """What changes, as it does; of a run, or of the list of runs."""
        name = request.query_params.get("run")
        if name is None:
            return _stream(self._briefly)
        path = self.places.run(name)
        return _stream(lambda: {**live.marks(path), "started": self.started.is_running(path)})

    async def act(self, request: Request) -> Response:
        """Does an action of a run: {run, name}."""
        value = await body_of(request)
        path = self.places.run(str(value.get("run", "")))
        try:
            sentence = await run_in_threadpool(actions.act, path, str(value.get("name", "")), self.started)
        except MezzotintError as error:
            return JsonAnswer(actions.sentence(error), 409)
        return JsonAnswer({"said": sentence})

    def _briefly(self) -> dict[str, Any]:
        """What the list of runs is followed by."""
        seen: dict[str, Any] = {}
        for name in self.places.runs():
            with suppress(OutOfPlace):
                path = self.places.run(name)
                seen[name] = live.brief(path), self.started.is_running(path)
        return seen

    # --- files ---

    def _file(self, request: Request) -> Path:
        """The file below a run's folder that a request names."""
        return inside(self.places.run(request.query_params.get("run", "")), request.query_params.get("file", ""))

    def file(self, request: Request) -> Response:
        """A picture or clip of a run; with `small` a copy of so many pixels."""
        return picture_answer(self._file(request), request)


def picture_answer(path: Path, request: Request) -> Response:
    """A picture or clip as it is, or small; anything else is not shown here."""
    side = request.query_params.get("small")
    if side is not None:
        content = pictures.small(path, min(1024, max(16, words.whole(side, 256))))
        if content is None:
            return PlainTextResponse("This file is not a readable image.\n", 415)
        return Response(content, media_type="image/webp", headers={"cache-control": "private, max-age=60"})
    kind = pictures.KINDS.get(path.suffix.lower())
    if kind is None:
        return PlainTextResponse("Only images and clips are shown.\n", 415)
    return _sent(path, kind, request.headers.get("range", ""))


def _sent(path: Path, kind: str, range_header: str = "") -> Response:
    """The file as it is, whole or the part that a Range header names, a block at a time."""
    try:
        with outside.open_plain(path) as file:
            size = file.seek(0, 2)
    except OSError:
        return PlainTextResponse("This file is gone.\n", 404)
    part = re.fullmatch(r"bytes=(\d{1,18})-(\d{0,18})", range_header)
    first, last = 0, size - 1
    if part is not None:
        first, last = int(part[1]), min(size - 1, int(part[2]) if part[2] else size - 1)
        if first > last:
            return Response(status_code=416, headers={"content-range": f"bytes */{size}"})
    headers = {"content-length": f"{last - first + 1}", "accept-ranges": "bytes", "cache-control": "private, max-age=5"}
    if part is not None:
        headers["content-range"] = f"bytes {first}-{last}/{size}"
    status = 200 if part is None else 206
    return StreamingResponse(_blocks(path, first, last), status, media_type=kind, headers=headers)


def _blocks(path: Path, first: int, last: int) -> Iterator[bytes]:
    with outside.open_plain(path) as file:
        file.seek(first)
        left = last - first + 1
        while left > 0 and (block := file.read(min(_AT_ONCE, left))):
            left -= len(block)
            yield block


def _stream(look: Any) -> StreamingResponse:
    return StreamingResponse(live.changes(look), media_type="text/event-stream", headers={"x-accel-buffering": "no"})


def _view(request: Request) -> dict[str, Any]:
    """Which stretch of which axis is asked for, and how wide it is shown."""
    query = request.query_params
    return {
        "axis": curves.axis_of(query.get("axis", "")),
        "begin": curves.place_of(query.get("from", "")),
        "end": curves.place_of(query.get("to", "")),
        "width": min(curves.WIDEST, max(100, words.whole(query.get("width", ""), _WIDTH))),
    }


def _event_text(event: dict[str, Any]) -> str:
    left_out = ("event", "time", *runs.ACCOUNT)
    rest = {name: value for name, value in event.items() if name not in left_out and value not in ([], None)}
    return ", ".join(
        f"{tails.shown(str(n))} {tails.shown(v if isinstance(v, str) else json.dumps(v, ensure_ascii=False))}"
        for n, v in rest.items()
    )


def coded(text: str) -> Markup:
    """A text whose parts between back quotes stand as code; all of it is text."""
    parts = [escape(part) for part in text.split("`")]
    if len(parts) % 2 == 0:  # one is left over: it stands for itself
        return escape(text)
    return Markup("").join(
        Markup("<code>") + one + Markup("</code>") if at % 2 else one for at, one in enumerate(parts)
    )


def in_script(value: Any) -> Markup:
    """A value as JSON that stands within `<script type="application/json">` and ends nothing there."""
    text = json.dumps(value, ensure_ascii=False).replace("<", "\\u003c").replace(">", "\\u003e")
    return Markup(text.replace("&", "\\u0026").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029"))


def static(name: str) -> bytes | None:
    """A file of the page itself; None for a name that is none of its own."""
    folder = resources.files("mezzotint.board") / "static"
    names = {entry.name for entry in folder.iterdir()}
    return (folder / name).read_bytes() if name in names else None
