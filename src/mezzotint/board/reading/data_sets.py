"""A data set as its run sees it: the catalogue of `check` and `train`, with the problems of each row."""

from __future__ import annotations

import itertools
import json
import os
import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray

from mezzotint import outside
from mezzotint.board.reading import token_counts
from mezzotint.board.reading.tails import make_printable, to_count
from mezzotint.data.buckets import buckets
from mezzotint.data.buckets.buckets import Placed
from mezzotint.data.catalogue import catalogue as catalogues
from mezzotint.data.catalogue.catalogue import Catalogue
from mezzotint.data.editing import journal
from mezzotint.data.files import image_settings
from mezzotint.data.files.listing import is_remote
from mezzotint.data.files.masks import is_named_mask
from mezzotint.data.files.regions import WHOLE
from mezzotint.data.findings import images
from mezzotint.data.findings.sets import SetSummary, summarize_sets
from mezzotint.data.formats.shared.table_files import is_manifest
from mezzotint.data.media import clip_files, decoding
from mezzotint.data.media.colour import conversions_of
from mezzotint.data.schedule import captions, condition_dropout, placement, plan
from mezzotint.data.schedule.columns import plan_columns
from mezzotint.data.schedule.plan import Visit
from mezzotint.errors import MezzotintError
from mezzotint.settings.reading.read import read_text, resolve_paths
from mezzotint.settings.recipe import Recipe
from mezzotint.settings.sections.data import DataSettings

PROBLEMS = {
    "enlarged": "smaller than its bucket",
    "cut": "more than half is cropped away",
    "same": "exact copy of another image",
    "empty": "empty caption",
    "long": "caption longer than the text encoder reads",
    "converted": "converted",
    "held-out": "held out",
    "review": "caption to be reviewed",
}
"""Filters of samples: name and description."""

_REPORT = 1_000_000_000
_MOST_RESULTS = 12
_LOOKED_AT = 5000
_LENGTHS = "Caption length"


@dataclass(slots=True)
class DataSet:
    """An opened data set. masks: for each problem, the rows that have it. placed: the buckets of all rows. same: by
    row, the row it is a copy of. lost: by row, the number of tokens cut off, from the run's data report."""

    recipe: Recipe
    catalogue: Catalogue
    masks: dict[str, NDArray[np.bool_]]
    placed: Placed
    same: Mapping[int, int]
    lost: Mapping[int, int]
    marks: Sequence[str] = ()
    """Of the edits of its folders; see `Journal`."""
    is_folder: bool = False
    """Whether it is a folder that is shown without a recipe."""
    tokens: tuple[list[int], int] | str = "tokens are counted only for the data of a run"
    """As `token_counts.of_run`."""
    _results: OrderedDict[tuple[str, ...], Any] = field(default_factory=OrderedDict)

    @property
    def settings(self) -> DataSettings:
        """The recipe's section."""
        return self.recipe.data

    def _compute_once(self, key: tuple[str, ...], work: Callable[[], Any]) -> Any:
        """The cached result of `work`, which reads all samples."""
        if key not in self._results:
            self._results[key] = work()
        with suppress(KeyError):  # another request has just removed it
            self._results.move_to_end(key)
        while len(self._results) > _MOST_RESULTS:
            self._results.popitem(last=False)
        return self._results[key] if key in self._results else work()

    @property
    def row_of(self) -> Mapping[str, int]:
        """The row of each key."""
        rows: Mapping[str, int] = self._compute_once(
            ("row-of",), lambda: {key: row for row, key in enumerate(self.catalogue.keys())}
        )
        return rows

    @property
    def excluded(self) -> frozenset[str]:
        """The keys of images that are excluded in a `mezzotint.jsonl`."""
        keys: frozenset[str] = self._compute_once(
            ("excluded",),
            lambda: frozenset(key for key, why in self.catalogue.report.left_out if why == image_settings.EXCLUDED),
        )
        return keys

    def folders(self) -> list[str]:
        """The first folders of the samples' keys, at most a hundred."""
        return list(self._compute_once(("folders",), self._folders))

    def _folders(self) -> list[str]:
        names: dict[str, None] = {}
        for number, key in enumerate(self.catalogue.keys()):
            names.setdefault(key.rpartition("/")[0])
            if len(names) > 100 or number > 200_000:
                break
        return sorted(filter(None, names))[:100]

    def rows(self, *, bucket: str = "", folder: str = "", problem: str = "", text: str = "") -> NDArray[np.int64]:
        """The rows that pass all filters, ascending; an empty filter passes all."""
        rows: NDArray[np.int64] = self._compute_once(
            ("rows", bucket, folder, problem, text), lambda: self._rows(bucket, folder, problem, text)
        )
        return rows

    def _rows(self, bucket: str, folder: str, problem: str, text: str) -> NDArray[np.int64]:
        is_selected = np.ones(len(self.catalogue), bool)
        if bucket:
            sizes = [str(size) for size in buckets.table(self.settings)]
            of_bucket = self.placed.bucket == (sizes.index(bucket) if bucket in sizes else -1)
            is_selected &= np.isin(np.arange(len(is_selected)), self.placed.sample[of_bucket])
        if problem:
            is_selected &= self.masks.get(problem, np.zeros(len(is_selected), bool))
        if text:
            is_selected &= np.isin(np.arange(len(is_selected)), self.catalogue.rows_with(text))
        if folder:
            is_selected &= np.isin(np.arange(len(is_selected)), self.catalogue.rows_in(folder))
        return np.flatnonzero(is_selected)

    def sample(self, row: int, *, epoch: int = 0, number: int = 0) -> dict[str, Any]:
        """The facts of a row, and how the model sees it at a visit. `frame`: left, top, width and height of the crop as
        shares of the whole image."""
        catalogue, settings = self.catalogue, self.catalogue.settings_of(row, self.settings)
        seed, at_epoch = plan.epoch_address(settings, self.recipe.run.seed, epoch)
        visit = Visit(row, int(catalogue.key_hash[row]), seed, at_epoch, number)
        entry = int(np.searchsorted(self.placed.sample, row))
        entry += number % int(self.placed.choices[entry])  # as visits are numbered in a plan
        size = buckets.table(self.settings)[int(self.placed.bucket[entry])]
        crop = placement.at_visit(catalogue, visit, size, settings)
        row_dropout = catalogue.overrides.caption_dropout_of(row)
        dropout = settings.captions.dropout if row_dropout is None else row_dropout
        if captions.is_dropped_in(at_epoch, settings.captions.dropout_every):
            dropout = 1.0
        if not condition_dropout.has_caption(visit, settings.condition_dropout):
            dropout = 1.0
        is_dropped = captions.is_dropped(visit, dropout)
        chosen = captions.choose(catalogue.captions(row), visit, dropout=dropout)
        all_captions = captions.DrawnCaptions.of(catalogue, row, settings)
        top, left = crop.crop_top_left
        return {
            "row": row,
            "key": make_printable(catalogue.key(row)),
            "id": quote(os.fsencode(catalogue.key(row)), safe="/"),
            "size": f"{int(catalogue.width[row])}×{int(catalogue.height[row])}",
            "aspect": float(catalogue.width[row]) / float(catalogue.height[row]),
            "bucket": str(size),
            "frames": int(catalogue.frames[row]),
            "frame": [
                left / crop.resized.width, top / crop.resized.height,
                crop.bucket.width / crop.resized.width, crop.bucket.height / crop.resized.height,
            ],
            "flipped": crop.flipped,
            "caption": make_printable(all_captions.at_visit(chosen, visit, is_cached=settings.cache.text)),
            "dropped": is_dropped,
            "conditions": [name for name, paired in catalogue.conditions.items() if paired.rows[row] >= 0],
            "captions": [make_printable(text) for text in catalogue.captions(row)[:20]],
            "conversions": list(conversions_of(int(catalogue.conversions[row]))),
            "edits": _name_edits(catalogue, row),
            "version": catalogue.digest[row][:6].tobytes().hex(),
            "problems": [PROBLEMS[name] for name, mask in self.masks.items() if mask[row] and name != "converted"],
            "same_as": make_printable(catalogue.key(self.same[row])) if row in self.same else "",
            "lost_tokens": self.lost.get(row, 0),
        }  # fmt: skip

    def histograms(self) -> list[dict[str, Any]]:
        """Buckets, sizes, aspect ratios, caption lengths: each {name, help, over, bars: [(label, count)]}; with `over`,
        the last bar counts captions that are cut."""
        return [*self._compute_once(("histograms",), self._histograms), self._caption_lengths()]

    def _caption_lengths(self) -> dict[str, Any]:
        if isinstance(self.tokens, str):
            bars = self._compute_once(
                ("words",), lambda: _bars(self.catalogue.caption_words().astype(np.float64), "{:.0f}")
            )
            return {
                "name": _LENGTHS,
                "help": f"words of the first caption ({self.tokens})",
                "bars": bars,
                "over": False,
            }
        counts, limit = np.asarray(self.tokens[0], np.float64), self.tokens[1]
        of = "" if len(counts) == len(self.catalogue) else f" of {len(counts):,} samples"
        fitting, over = counts[counts <= limit], int(np.count_nonzero(counts > limit))
        return {
            "name": _LENGTHS, "over": True, "bars": [*_bars(fitting, "{:.0f}"), (f"over {limit}, cut", over)],
            "help": f"tokens of the first caption{of}, including start and end; the text encoder reads {limit}",
        }  # fmt: skip

    def _histograms(self) -> list[dict[str, Any]]:
        catalogue = self.catalogue
        table = [str(size) for size in buckets.table(self.settings)]
        counts = np.bincount(self.placed.bucket, minlength=len(table))
        of_buckets = [
            (table[index], int(counts[index])) for index in np.argsort(-counts, kind="stable") if counts[index]
        ]
        side = np.sqrt(catalogue.width.astype(np.float64) * catalogue.height)
        aspects = np.log2(catalogue.width / np.maximum(1, catalogue.height))
        aspect = _bars(aspects, "{:.2f}", show=lambda v: 2.0**v)
        return [
            {"name": "Buckets", "over": False, "help": "size that each sample is trained at", "bars": of_buckets[:24]},
            {"name": "Sizes", "over": False, "help": "√(width × height), pixels", "bars": _bars(side, "{:.0f}")},
            {"name": "Aspect", "over": False, "help": "width / height", "bars": aspect},
        ]  # fmt: skip

    def _sets(self) -> tuple[SetSummary, ...]:
        rows, _ = self.catalogue.split(self.settings.holdout, self.recipe.run.seed, at_most=self.settings.max_samples)
        return summarize_sets(self.catalogue, rows, plan_columns(self.catalogue, rows, self.settings), self.settings)

    def summary(self) -> dict[str, Any]:
        """Counts, and the skipped and excluded files with their reasons."""
        report = self.catalogue.report
        problems = [(name, PROBLEMS[name], int(mask.sum())) for name, mask in self.masks.items() if mask.any()]
        return {
            "used": report.used,
            "sets": [(one.name, make_printable(str(one))) for one in self._compute_once(("sets",), self._sets)],
            "problems": problems,
            "skipped": [(make_printable(path), make_printable(reason)) for path, reason in report.skipped[:500]],
            "left_out": [(make_printable(path), make_printable(reason)) for path, reason in report.left_out[:500]],
            "excluded": {make_printable(key): quote(os.fsencode(key), safe="/") for key in sorted(self.excluded)[:500]},
            "notes": [(make_printable(path), make_printable(reason)) for path, reason in report.notes[:500]],
            "converted": report.converted,
            "counts": (len(report.skipped), len(report.left_out)),
        }


def _bars(
    values: NDArray[np.float64], form: str, *, show: Callable[[float], float] = lambda value: value
) -> list[tuple[str, int]]:  # fmt: skip
    """At most sixteen bars of equal width."""
    if not len(values):
        return []
    low, high = float(values.min()), float(values.max())
    counts, edges = np.histogram(values, bins=min(16, max(1, len(np.unique(values)))), range=(low, high + 1e-9))
    ends = [form.format(show(edge)) for edge in edges.tolist()]
    pairs = zip(ends, ends[1:], counts.tolist(), strict=False)
    return [(low if low == high else f"{low} – {high}", int(count)) for low, high, count in pairs]


def recipe_of(folder: Path, overrides: Sequence[str] = ()) -> Recipe:
    """A recipe to show a folder that is not a run's: of images, or of clips if there are more of those, with its
    tables and masks; samples without captions are included. Raises RecipeError."""
    files = list(itertools.islice((file for _, _, files in os.walk(folder) for file in files), _LOOKED_AT))
    endings = Counter(os.path.splitext(file)[1].lower() for file in files)
    clips, images = (sum(endings[one] for one in suffixes) for suffixes in (clip_files.SUFFIXES, decoding.SUFFIXES))
    data: dict[str, Any] = {"path": str(folder), "captions": {"missing": "empty"}}
    if clips > images:
        data |= {"format": "videofolder", "clips": {"frames": 1}}  # accepts clips of any length
    elif any(map(is_manifest, files)):
        data["format"] = "metadata"
    if any(map(is_named_mask, files)):
        data["mask"] = {"source": "files"}
    return resolve_paths(read_text(json.dumps({"schema": 1, "data": data}), "data", overrides))


def open_data(recipe: Recipe, run: Path | None, progress: Callable[[int, int], None] | None = None) -> DataSet:
    """The data set of a located recipe. run: the folder whose data report gives lost tokens. Raises DatasetError and
    StorageError."""
    settings, marks = recipe.data, _marks_of(recipe.data)
    catalogue = catalogues.build(settings, settings.cache.path.expanduser() / "catalogues", progress=progress)
    rows = np.arange(len(catalogue))
    same = images.find_copies(catalogue)
    lost = _lost_tokens(catalogue, run)
    _, held = catalogue.split(settings.holdout, recipe.run.seed, at_most=settings.max_samples)
    masks = {
        "enlarged": images.enlargements(catalogue, rows, settings) > 1,
        "cut": images.seen_shares(catalogue, rows, settings) < images.MOSTLY_CUT,
        "same": np.isin(rows, [*same.keys(), *same.values()]),
        "empty": np.isin(rows, catalogue.with_empty_captions()),
        "long": np.isin(rows, list(lost)),
        "converted": np.asarray(catalogue.conversions) != 0,
        "held-out": np.isin(rows, held),
        "review": _find_to_review(catalogue),
    }
    placed = catalogue.buckets_of(rows, settings)
    return DataSet(recipe, catalogue, masks, placed, same, lost, marks=marks, is_folder=run is None)


def _marks_of(settings: DataSettings) -> list[str]:
    paths = (one.settings.path for one in settings.image_sets())
    return [
        mark for path in paths if path is not None and not is_remote(path) for mark in journal.marks(path.resolve())
    ]


def _find_to_review(catalogue: Catalogue) -> NDArray[np.bool_]:
    """Which images have a caption that a program wrote and nobody has accepted."""
    waiting: set[str] = set()
    keys = list(catalogue.keys())
    for number, root in enumerate(catalogue.roots):
        prefix = f"{number}/" if len(catalogue.roots) > 1 else ""
        folders = {key[len(prefix) :].rpartition("/")[0] for key in keys if key.startswith(prefix)}
        below = image_settings.read_below(root, (f"{folder}/" for folder in folders)) if not is_remote(root) else None
        waiting |= {prefix + name for name, one in below.of_names.items() if one.review} if below is not None else set()
    is_waiting = np.zeros(len(catalogue), bool)
    for row, key in enumerate(keys if waiting else ()):
        is_waiting[row] = key in waiting or key.rpartition("#")[0] in waiting
    return is_waiting


def _name_edits(catalogue: Catalogue, row: int) -> list[str]:
    """What the `mezzotint.jsonl` and the mask of an image change."""
    region = catalogue.overrides.region_of(row)
    cropped = ["cropped"] if region is not None and region.crop != WHOLE else []
    rotated = [f"rotated {region.rotate}°"] if region is not None and region.rotate else []
    return [*cropped, *rotated, *(["mask"] if catalogue.overrides.mask_of(row) is not None else [])]


def _lost_tokens(catalogue: Catalogue, run: Path | None) -> dict[int, int]:
    """From a run's data report, the number of tokens that the text encoder cuts off, by row."""
    lines: list[dict[str, Any]] = []
    with suppress(OSError):
        if run is not None:
            with outside.open_plain(run / "data_report.jsonl", limit=_REPORT, within=run) as file:
                lines = [_parse_report_line(line) for line in file if b'"lost_tokens"' in line]
    lost = {str(line["id"]): count for line in lines if (count := to_count(line.get("lost_tokens"))) is not None}
    if not lost:
        return {}
    return {row: lost[key] for row, key in enumerate(catalogue.keys()) if key in lost}


def _parse_report_line(line: bytes) -> dict[str, Any]:
    """The object of a JSON line; empty for anything else, and without an `id`."""
    with suppress(ValueError):
        value = outside.parse_json(line.decode("utf-8", "replace"))
        return value if isinstance(value, dict) and "id" in value else {}
    return {}


@dataclass(slots=True)
class Opening:
    """A data set that is being opened in a thread, is open, or has failed to open. is_counted: whether counting its
    captions' tokens has ended."""

    data: DataSet | None = None
    error: MezzotintError | None = None
    done: int = 0
    total: int = 0
    is_counted: bool = False
    _ready: threading.Event = field(default_factory=threading.Event)

    def is_old(self) -> bool:
        """Whether its folders have been edited since it was opened, here, in another window or by a command."""
        return self.data is not None and self.data.marks != _marks_of(self.data.settings)

    def start(self, recipe: Recipe, run: Path | None) -> None:
        """Starts the thread. With a run, it then counts tokens of captions with the run's tokenizer."""
        threading.Thread(target=self._open, args=(recipe, run), daemon=True).start()

    def wait(self, seconds: float) -> bool:
        """Whether it is open or has failed within `seconds`."""
        return self._ready.wait(seconds)

    def _open(self, recipe: Recipe, run: Path | None) -> None:
        try:
            self.data = open_data(recipe, run, self._progress)
            self.data.histograms()  # computed here and cached: they read all samples
            self.data.folders()
            if run is not None:
                self.data.tokens = "counting tokens …"
                self._ready.set()
                self.data.tokens = token_counts.of_run(run)
        except MezzotintError as error:
            self.error = error
        finally:
            self.is_counted = True
            self._ready.set()

    def _progress(self, done: int, total: int) -> None:
        self.done, self.total = done, total
