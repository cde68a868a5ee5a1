"""The command `report`: the page of a run or of a data set as one HTML file that needs no network and no other program.
It has at most 30 MB and lists what was left out.
"""

from __future__ import annotations

import base64
import hashlib
import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup

from mezzotint import durable, outside
from mezzotint.errors import RecipeError
from mezzotint.settings.counting import format_bytes, format_count
from mezzotint.tasks.reading import command_line
from mezzotint.tasks.reading.commands import REPLACE

MOST = 30_000_000
"""Largest size of a report, in bytes."""

_IMAGES = 24_000_000
"""Bytes of it for images. Clips are shown as a strip of frames."""

_SIDE = 512
_WIDTH = 1600
_SAMPLES = 1200
_MODULES = ("page.js", "curves.js", "images.js", "settings.js", "frames.js", "report.js")
_INSTALL = "mezzotint report needs Jinja and Starlette; install them with `pip install 'mezzotint[board]'`"


def run(arguments: Sequence[str]) -> int:
    """`mezzotint report RUN|DATA [--out=FILE.html] [--replace]`. Returns 0.

    Raises RecipeError: E1940 if packages are missing, E1943 if the folder does not exist or contains runs, E1014 if the
    output file exists; DatasetError for a folder that is not a data set; StorageError.
    """
    line = command_line.parse(arguments, "report")
    path = Path(line.plain[0]).expanduser()
    if not path.is_dir():
        raise RecipeError(f"mezzotint report: there is no folder {path}; name a run or a data set", code="E1943")
    out = line.get_path("--out") or Path(f"{path.resolve().name}.html")
    replaces = REPLACE.name in line
    durable.refuse_taken(out, replaces=replaces, remedy="give another name with --out=FILE.html")
    try:
        from mezzotint.board.reading import root_folders
    except ModuleNotFoundError as error:
        raise RecipeError(f"{_INSTALL} ({error.name} is missing)", code="E1940") from error
    runs = root_folders.RootFolders.of([path]).runs()
    if runs and runs != ["0"]:
        first = path / runs[0].partition("/")[2]
        message = f"mezzotint report: {path} contains runs and is not a run; name one of them, such as {first}"
        raise RecipeError(message, code="E1943")
    text, left_out = render_run(path) if runs else render_data(path)
    durable.write_new(out, text, replaces=replaces, remedy="give another name with --out=FILE.html")
    print(f"{out}: {format_bytes(len(text.encode()))}; {'; '.join(left_out) if left_out else 'nothing was left out'}")
    return 0


def render_run(path: Path) -> tuple[str, list[str]]:
    """The report of a run, and a list of what it leaves out."""
    from mezzotint.board import curves
    from mezzotint.board.pages import Pages, leak_facts
    from mezzotint.board.reading import images, tails
    from mezzotint.board.reading.metrics import RunMetrics
    from mezzotint.board.reading.root_folders import RootFolders

    pages = Pages(RootFolders.of([path]), read_only=True)
    metrics = RunMetrics(path / "metrics.jsonl")
    while metrics.follow(blocks=8):
        pass
    charts = {axis: curves.charts(metrics, path, axis=axis, width=_WIDTH) for axis in ("step", "time", "samples")}
    previews = images.previews(path)
    embedded_images = dict(
        _select_fitting(previews.drawn, _IMAGES, lambda name: _image_uri(path / "samples" / f"step-{name}"))
    )
    drawn = previews.as_json() | {"drawn": sorted(embedded_images), "clips": []}
    drawn["steps"] = sorted(
        {int(name[:8]) if name[8] == "/" else int(name.partition("/")[0]) for name in embedded_images}
    )
    left_out = []
    most = max((one["count"] for chart in charts["step"]["charts"] for one in chart["series"]), default=0)
    if most > 2 * _WIDTH:
        left_out.append(f"curve points: of {most:,} the lowest and highest of {_WIDTH:,} intervals are kept")
    if len(embedded_images) < len(previews.drawn):
        left_out.append(f"{len(previews.drawn) - len(embedded_images)} of {len(previews.drawn)} images")
    if embedded_images:
        left_out.append(f"images larger than {_SIDE} pixels are reduced, and image metadata is left out")
    if previews.clips:
        left_out.append(f"{format_count(len(previews.clips), 'clip')}: shown as a strip of frames")
    left_out += [f"{name}: a link that leads out of the run folder" for name in _links_out_of(path)]
    log = path / "run.log"
    if log.is_file() and not log.is_symlink() and log.stat().st_size > tails.TAIL:
        left_out.append(f"the log before its last {tails.TAIL // 1000} kB")
    embedded = {"charts": charts, "drawn": drawn, "images": embedded_images}
    facts = pages.facts(path.resolve()) | {
        "name": "",
        "path": path.resolve(),
        "title": path.resolve().name,
        "kind": "run",
    }
    facts |= leak_facts(metrics)
    for part in ("log", "events", "card", "description"):  # the template makes markup of them, which stays as it is
        facts[part] = hide_home(facts[part])
    return _render_file(pages, embedded, left_out, facts), left_out


def render_data(path: Path) -> tuple[str, list[str]]:
    """The report of a data set, and a list of what it leaves out. Raises DatasetError."""
    from mezzotint.board.pages import Pages
    from mezzotint.board.reading import data_sets
    from mezzotint.board.reading.root_folders import RootFolders
    from mezzotint.board.reading.tails import make_printable
    from mezzotint.data.catalogue import thumbnails

    data = data_sets.open_data(data_sets.recipe_of(path.resolve()), None)
    total, room = len(data.catalogue), _IMAGES
    thumbs: dict[int, str] = {}
    for row in _spread_indices(total, _SAMPLES):
        content = thumbnails.thumbnail(data.catalogue, row, data.settings)
        uri = _uri(content) or "data:,"
        if len(uri) > room:
            break
        room -= len(uri)
        thumbs[row] = uri
    left_out = [f"{total - len(thumbs):,} of {total:,} samples"] if len(thumbs) < total else []
    counts = data.catalogue.report.skipped, data.catalogue.report.left_out
    left_out += [f"{len(files) - 500:,} of {len(files):,} file names" for files in counts if len(files) > 500]
    facts = {
        "kind": "data", "title": path.resolve().name, "samples": [data.sample(row) for row in sorted(thumbs)],
        "thumbs": thumbs, "all": total, "summary": data.summary(), "histograms": data.histograms(), "query": "",
        "roots": [make_printable(str(root)) for root in data.catalogue.roots],
    }  # fmt: skip
    return _render_file(Pages(RootFolders.of([path]), read_only=True), {}, left_out, facts), left_out


def _links_out_of(run: Path) -> list[str]:
    """Names of symbolic links in a run folder that lead out of it and are not followed."""
    with os.scandir(run) as entries:
        links = [entry for entry in entries if entry.is_symlink()]
        return sorted(link.name for link in links if outside.leads_out(Path(link.path), run))


def hide_home(value: Any) -> Any:
    """A copy of a value in which `~` replaces the home folder in all texts, for privacy. Markup and images are
    unchanged."""
    if isinstance(value, dict):
        return {hide_home(name): hide_home(inner) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [hide_home(inner) for inner in value]
    if isinstance(value, Path):
        value = str(value)
    if not isinstance(value, str) or isinstance(value, Markup) or value.startswith("data:"):
        return value
    home = os.path.expanduser("~").rstrip("/")
    for folder in sorted({home, os.path.realpath(home)} - {"", "/"}, key=len, reverse=True):
        # a short path such as /root may be the end of another one, /srv/root
        before = r"(?<![\w.])" if folder.count("/") == 1 else ""
        value = re.sub(before + re.escape(folder) + r"(?![\w-]|\.\w)", "~", value)
    return value


def _select_fitting(names: Sequence[str], room: int, uri_of: Callable[[str], str]) -> Iterator[tuple[str, str]]:
    """(name, data URI) of as many images as fit into `room` bytes: whole steps, first the last and the first one, then
    evenly spread ones. Unreadable images are skipped."""
    steps = sorted({name.partition("/")[0] for name in names})
    for index in _spread_indices(len(steps), len(steps)):
        uris = [(name, uri_of(name)) for name in names if name.startswith(f"{steps[index]}/")]
        room -= sum(len(uri) for _, uri in uris)
        if room < 0:
            return
        yield from ((name, uri) for name, uri in uris if uri)


def _image_uri(file: Path) -> str:
    from mezzotint.board.reading import images

    return _uri(images.downscale(file, _SIDE))


def _spread_indices(total: int, most: int) -> list[int]:
    """At most `most` indices below `total`: the last, the first, then ever finer between them."""
    chosen: dict[int, None] = dict.fromkeys([total - 1, 0] if total > 1 else range(total))
    step = total
    while step > 1 and len(chosen) < min(total, most):
        step = -(-step // 2)
        for index in range(0, total, step):
            chosen.setdefault(index)
    return list(chosen)[:most]


def _uri(content: bytes | None) -> str:
    return "" if content is None else f"data:image/webp;base64,{base64.b64encode(content).decode('ascii')}"


def _render_file(pages: Any, embedded: dict[str, Any], left_out: list[str], facts: dict[str, Any]) -> str:
    """The file. Its Content-Security-Policy allows only its own scripts and styles, by their hashes."""
    from mezzotint.board.pages import static

    names = (*_MODULES, "uPlot.iife.min.js", "uPlot.min.css", "page.css")
    files = {name: (static(name) or b"").decode() for name in names}
    program = "\n".join(_inline_module(files[name]) for name in _MODULES)
    plotting, style = files["uPlot.iife.min.js"].replace("</", "<\\/"), files["uPlot.min.css"] + files["page.css"]
    assert "</" not in program, "a script would end in the middle"
    policy = (
        f"default-src 'none'; img-src data:; style-src {_hash(style)}; "
        f"script-src {_hash(plotting)} {_hash(program)}; "
        "base-uri 'none'; form-action 'none'"
    )
    templates = pages.templates.overlay(finalize=hide_home)
    text: str = templates.get_template("report.html").render(
        facts, policy=policy, style=Markup(style), program=Markup(program), plotting=Markup(plotting),
        embedded=hide_home(embedded), left_out=left_out, report=True, offered=[],
        written=time.time(),
    )  # fmt: skip
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _inline_module(module: str) -> str:
    """A module as a part of one script, without import and export statements."""
    without = re.sub(r"^import [^;]*;\n", "", module, flags=re.MULTILINE)
    return re.sub(r"^export (?=async|const|class|function)", "", without, flags=re.MULTILINE)


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode('ascii')}'"
