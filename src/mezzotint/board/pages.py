"""The pages Runs, Run and Compare, and the parts of them that a script reloads after a change."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator
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
from mezzotint.board import curves, formatting, live
from mezzotint.board.acting import actions
from mezzotint.board.answers import HtmlAnswer, JsonAnswer, read_body
from mezzotint.board.reading import images, notes, runs, tails, values
from mezzotint.board.reading.metrics import MetricsCache, RunMetrics
from mezzotint.board.reading.root_folders import OutsideFolders, RootFolders, inside
from mezzotint.errors import CheckpointError, MezzotintError
from mezzotint.reports import html_pages
from mezzotint.settings import counting
from mezzotint.tasks.queue.entries import FOLDER, Queue

PAGES = [
    ("/new", "New run", "new"), ("/queue", "Queue", "queue"), ("/data", "Data", "data"),
    ("/recipe", "Recipe", "recipe"), ("/draw", "Generate", "draw"),
]  # fmt: skip
"""Address, name and key of each page except Runs."""

_BLOCK = 1 << 18
"""Bytes of a file that are sent at once."""

PARTS = ("facts", "output", "notes", "stored", "description", "settings", "events", "log", "card")
"""The parts of a run's page, without curves and images."""

MOST_COMPARED = 8
"""Runs that are compared at most."""

_WIDTH = 1200


@dataclass(slots=True)
class Rows:
    """A row of the list of runs. family: of its model, "" if its recipe has none."""

    name: str
    path: Path
    status: runs.RunStatus
    image: str
    notes: notes.RunNotes
    family: str


@dataclass(eq=False)
class Pages:
    """Handlers of the pages Runs, Run and Compare, and what all pages share. read_only: leave out actions."""

    roots: RootFolders
    read_only: bool = False
    metrics_cache: MetricsCache = field(default_factory=MetricsCache)
    started: actions.StartedProcesses = field(default_factory=actions.StartedProcesses)
    _row_cache: dict[Path, tuple[Any, Rows]] = field(default_factory=dict)

    @cached_property
    def templates(self) -> jinja2.Environment:
        """Templates with autoescaping and the page's filters."""
        environment = html_pages.templates("mezzotint.board")
        environment.filters |= {
            "size": counting.format_bytes, "duration": formatting.format_duration, "number": formatting.format_number,
            "finite": formatting.keep_finite,
            "moment": formatting.format_moment,
            "with_moments": formatting.mark_moments,
            "unquote": unquote_plus, "count": formatting.format_count, "printable": tails.make_printable,
            "json": to_script_json, "coded": mark_code,
            "label": lambda name: tails.make_printable(self.roots.label(name)),
        }  # fmt: skip
        environment.globals |= {
            "version": __version__,
            "read_only": self.read_only,
            "report": False,
            "is_editable": False,
            "static": "/static/",
            "pages_besides": PAGES[self.read_only :],
            "most_stored": runs.MOST_STORED,
        }
        return environment

    def html(self, template: str, status: int = 200, /, **facts: Any) -> HtmlAnswer:
        """The response with a rendered template."""
        return HtmlAnswer(self.templates.get_template(template).render(facts), status)

    at_close: list[Callable[[], None]] = field(default_factory=list)

    def close(self) -> None:
        """Ends helper processes of the page; runs continue."""
        for end in self.at_close:
            end()

    @cached_property
    def queue(self) -> Queue:
        """The queue of the page, in its first folder."""
        return Queue(self.roots.folders[0] / FOLDER)

    # --- Runs ---

    def rows(self, names: Collection[str] | None = None) -> list[Rows]:
        """All runs, the last changed first; or only those of `names` that are among them."""
        all_names = self.roots.runs()
        rows = [row for name in all_names if (names is None or name in names) and (row := self._row(name)) is not None]
        if names is None:
            self._row_cache = {row.path: self._row_cache[row.path] for row in rows if row.path in self._row_cache}
        return sorted(rows, key=lambda row: row.status.changed, reverse=True)

    def _row(self, name: str) -> Rows | None:
        """The row of a run, from the cache while its files are unchanged; None if it was removed since the folders were
        searched."""
        try:
            path = self.roots.run(name)
            stamp = live.stamp_row(path)
        except (OutsideFolders, OSError):
            return None
        if path not in self._row_cache or self._row_cache[path][0] != stamp:
            newest = images.newest(path)
            image = "" if newest is None else newest.relative_to(path).as_posix()
            family = values.read_family(path / "recipe.yaml")
            row = Rows(name, path, runs.read_status(path), image, notes.read_notes(path), family)
            self._row_cache[path] = stamp, row
        row = self._row_cache[path][1]
        return replace(row, status=self._with_start(path, row.status))

    def status(self, path: Path) -> runs.RunStatus:
        """The status of a run. A run that the page has started counts as starting before it holds its lock."""
        return self._with_start(path, runs.read_status(path))

    def _with_start(self, path: Path, status: runs.RunStatus) -> runs.RunStatus:
        if status.state in ("stopped", "killed", "failed", "diverged") and self.started.is_running(path):
            return replace(status, state="starting")
        return status

    def runs(self, request: Request) -> Response:
        """The list of runs, or only its rows: with `run=NAME` those of some runs."""
        query = request.query_params
        name = "_runs.html" if "part" in query else "runs.html"
        rows = self.rows(query.getlist("run") if "run" in query else None)
        return self.html(name, rows=rows, folders=self.roots.folders, is_cut=self.roots.is_cut, current_page="runs")

    def compare(self, request: Request) -> Response:
        """Several runs side by side."""
        names, paths = self._selected_runs(request)
        recipes = {name: values.read_tree(path / "recipe.yaml") for name, path in zip(names, paths, strict=True)}
        drawn = {
            name: images.previews(path).as_json() | {"label": self.roots.label(name)}
            for name, path in zip(names, paths, strict=True)
        }
        rows = [(name, path, self.status(path)) for name, path in zip(names, paths, strict=True)]
        return self.html(
            "compare.html",
            rows=rows,
            names=names,
            settings=values.compare(recipes),
            drawn=drawn,
            current_page="runs",
        )

    def compared_curves(self, request: Request) -> Response:
        """The curves of several runs."""
        names, paths = self._selected_runs(request)
        tables = {
            self.roots.label(name): self.metrics_cache.metrics(path).table
            for name, path in zip(names, paths, strict=True)
        }
        return JsonAnswer(curves.compare_charts(tables, **_view(request)))

    def _selected_runs(self, request: Request) -> tuple[list[str], list[Path]]:
        names = list(dict.fromkeys(request.query_params.getlist("run")))[:MOST_COMPARED]
        return names, [self.roots.run(name) for name in names]

    # --- Run ---

    def run(self, request: Request) -> Response:
        """The page of a run."""
        name = request.query_params.get("run", "")
        path = self.roots.run(name)
        drawn = images.previews(path).as_json()
        return self.html("run.html", name=name, path=path, drawn=drawn, current_page="runs", **self.facts(path))

    def facts(self, path: Path, *parts: str) -> dict[str, Any]:
        """The values of the given parts of a run's page; of all parts without an argument."""
        facts: dict[str, Any] = {}
        for part in parts or PARTS:
            facts |= self._read_part(path, part)
        return facts

    def _read_part(self, path: Path, part: str) -> dict[str, Any]:
        match part:
            case "facts":
                status = self.status(path)
                is_starting = (
                    status.state == "starting"
                )  # it may not hold its lock yet, and must not be offered a second start
                is_fixed = self.read_only or is_starting or self.roots.is_trashed(path)
                return {
                    "status": status, "meaning": status.meaning, "notes": notes.read_notes(path),
                    "is_trashed": self.roots.is_trashed(path),
                    "offered": [] if is_fixed else actions.list_actions(path),
                }  # fmt: skip
            case "notes":
                return {"notes": notes.read_notes(path), "is_trashed": self.roots.is_trashed(path)}
            case "output":
                is_shown = self.status(path).state in ("starting", "failed") or self.started.has_failed(path)
                return {"output": actions.last_output(path) if is_shown else ""}
            case "stored":
                stored = {"checkpoints": runs.checkpoints(path), "exports": runs.exports(path)}
                return {
                    **stored,
                    **leak_facts(self.metrics_cache.metrics(path)),
                    "resume_command": runs.resume_command(path) if (path / "recipe.yaml").is_file() else "",
                }
            case "description":
                return {"description": runs.description(runs.history(path))}
            case "settings":
                return {"settings": values.read_effective(path)}
            case "events":
                return {"events": list(reversed(runs.history(path)))[:500], "event_text": _event_text}
            case "log":
                return {"log": tails.tail(path / "run.log")}
            case "card":
                return {"card": runs.card(path, runs.history(path))}
            case _:
                raise OutsideFolders(part)

    def part(self, request: Request) -> Response:
        """One part of a run's page."""
        name, part = request.query_params.get("run", ""), request.path_params["part"]
        path = self.roots.run(name)
        return self.html(f"_{part}.html", name=name, path=path, **self.facts(path, part))

    def run_curves(self, request: Request) -> Response:
        """The charts of a run."""
        path = self.roots.run(request.query_params.get("run", ""))
        return JsonAnswer(curves.charts(self.metrics_cache.metrics(path), path, **_view(request)))

    def previews(self, request: Request) -> Response:
        """The list of a run's previews."""
        return JsonAnswer(images.previews(self.roots.run(request.query_params.get("run", ""))).as_json())

    def image_facts(self, request: Request) -> Response:
        """The sampling parameters of an image."""
        return JsonAnswer(images.facts(self._file(request)))

    async def events(self, request: Request) -> Response:
        """Server-sent events of a run, or of the list of runs."""
        name = request.query_params.get("run")
        if name is None:
            return stream(self._run_list_state)
        path = self.roots.run(name)
        return stream(lambda: {**live.marks(path), "started": self.started.is_running(path)})

    async def act(self, request: Request) -> Response:
        """Performs an action on a run: {run, name}."""
        value = await read_body(request)
        path = self.roots.run(str(value.get("run", "")))
        if self.roots.is_trashed(path):
            raise CheckpointError(f"{path.name} is in the trash; restore it first", code="E1946")
        try:
            sentence = await run_in_threadpool(actions.act, path, str(value.get("name", "")), self.started)
        except MezzotintError as error:
            return JsonAnswer(actions.error_json(error), 409)
        return JsonAnswer({"message": sentence})

    def _run_list_state(self) -> dict[str, Any]:
        """By run, a value that differs once its row in the list has changed."""
        seen: dict[str, Any] = {}
        for name in self.roots.runs():
            with suppress(OutsideFolders):
                path = self.roots.run(name)
                seen[name] = live.brief(path), self.started.is_running(path)
        return seen

    # --- files ---

    def _file(self, request: Request) -> Path:
        """The file of a run that a request names."""
        return inside(self.roots.run(request.query_params.get("run", "")), request.query_params.get("file", ""))

    def file(self, request: Request) -> Response:
        """An image or clip of a run; with `small=N` a copy of at most N pixels a side."""
        return image_answer(self._file(request), request)


def image_answer(path: Path, request: Request) -> Response:
    """The response with an image or clip, or a small copy of it; 415 for any other file."""
    side = request.query_params.get("small")
    if side is not None:
        content = images.downscale(path, min(1024, max(16, formatting.parse_whole(side, 256))))
        if content is None:
            return PlainTextResponse("This file is not a readable image.\n", 415)
        return Response(content, media_type="image/webp", headers={"cache-control": "private, max-age=60"})
    kind = images.KINDS.get(path.suffix.lower())
    if kind is None:
        return PlainTextResponse("Only images and clips are shown.\n", 415)
    return _send_file(path, kind, request.headers.get("range", ""))


def _send_file(path: Path, kind: str, range_header: str = "") -> Response:
    """The file, whole or the part of a Range header, block by block."""
    try:
        with outside.open_plain(path) as file:
            size = file.seek(0, 2)
    except OSError:
        return PlainTextResponse("This file was removed.\n", 404)
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
        while left > 0 and (block := file.read(min(_BLOCK, left))):
            left -= len(block)
            yield block


def stream(look: Any) -> StreamingResponse:
    return StreamingResponse(live.changes(look), media_type="text/event-stream", headers={"x-accel-buffering": "no"})


def leak_facts(metrics: RunMetrics) -> dict[str, Any]:
    """Whether a run measured a leak (`run.drift`), and a function of a saved model that returns the last before it."""
    table = metrics.table
    return {
        "has_leaks": "drift/leak" in table.rows,
        "leak_of": lambda one: table.latest(f"drift/leak{'_shadow' * ('ema' in one.name)}", one.step),
    }


def _view(request: Request) -> dict[str, Any]:
    """The requested axis, interval and width of charts."""
    query = request.query_params
    return {
        "axis": curves.parse_axis(query.get("axis", "")),
        "begin": curves.parse_position(query.get("from", "")),
        "end": curves.parse_position(query.get("to", "")),
        "width": min(curves.WIDEST, max(100, formatting.parse_whole(query.get("width", ""), _WIDTH))),
    }


def _event_text(event: dict[str, Any]) -> str:
    left_out = ("event", "time", *runs.ACCOUNT)
    rest = {name: value for name, value in event.items() if name not in left_out and value not in ([], None)}
    texts = {
        name: value if isinstance(value, str) else json.dumps(value, ensure_ascii=False) for name, value in rest.items()
    }
    return ", ".join(f"{tails.make_printable(str(name))} {tails.make_printable(text)}" for name, text in texts.items())


def mark_code(text: str) -> Markup:
    """Escaped text in which parts between backquotes are `<code>` elements."""
    parts = [escape(part) for part in text.split("`")]
    if len(parts) % 2 == 0:  # an unpaired backquote is text
        return escape(text)
    return Markup("").join(
        Markup("<code>") + part + Markup("</code>") if index % 2 else part for index, part in enumerate(parts)
    )


def to_script_json(value: Any) -> Markup:
    """JSON for `<script type="application/json">`, escaped so that it cannot end the element."""
    text = json.dumps(value, ensure_ascii=False).replace("<", "\\u003c").replace(">", "\\u003e")
    return Markup(text.replace("&", "\\u0026").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029"))


def static(name: str) -> bytes | None:
    """A static file of the page; None for an unknown name."""
    folder = resources.files("mezzotint.board") / "static"
    names = {entry.name for entry in folder.iterdir()}
    return (folder / name).read_bytes() if name in names else None
