"""Models and folders of images below the folders of the page, for a new run: what each is, without opening an image or
a weight. Links that lead out of a folder of the page are not followed.
"""

from __future__ import annotations

import heapq
import os
import time
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from mezzotint import outside
from mezzotint.assets import DATA, MODELS
from mezzotint.board.reading.root_folders import OutsideFolders, RootFolders
from mezzotint.board.reading.tails import make_printable
from mezzotint.data.media import clip_files, decoding
from mezzotint.errors import MezzotintError
from mezzotint.settings import weights_formats
from mezzotint.settings.counting import format_bytes
from mezzotint.settings.families.base import family_spec
from mezzotint.tasks.proposing.choices import DataFacts, ModelFacts

SHIPPED = "shipped:"
"""Prefix of the names of models and data sets that ship."""
SHIPPED_MODEL, SHIPPED_DATA = "mezzotint-mini", "shapes"
SHIPPED_FOLDER = DATA / SHIPPED_DATA

SHOWN_IMAGES = 12
_DEPTH, _MOST_FOLDERS, _MOST_ENTRIES, _MOST_FILES = 6, 20_000, 1_000_000, 200
_SECONDS = 4.0
"""Seconds after which a search ends; the page says so."""
_SKIPPED = {"node_modules", "__pycache__", "site-packages", "checkpoints", "exports", "samples", "logs", "queue"}
_CAPTIONS = (".txt", ".caption")
_TABLES = ("metadata.jsonl", "metadata.csv", "metadata.parquet")
_READ_CAPTIONS, _CAPTION_BYTES = 20, 20_000
_CONFIGS = ("config.json", "transformer/config.json", "unet/config.json", "scheduler/scheduler_config.json")


@dataclass(slots=True)
class ImageCounts:
    """A folder of images or clips. files: the first images by name, relative to it."""

    images: int = 0
    clips: int = 0
    captions: int = 0
    has_table: bool = False
    files: list[str] = field(default_factory=list)

    @property
    def samples(self) -> int:
        """Images and clips."""
        return self.images + self.clips


@dataclass(frozen=True, slots=True)
class FoundModel:
    """A model for the list. name: see `RootFolders`, or `shipped:NAME`. about: what it is. facts: None for what cannot
    be trained, which `about` then explains."""

    name: str
    label: str
    about: str
    facts: ModelFacts | None


@dataclass(slots=True)
class Limits:
    """What a search may still look at. is_cut: whether it ended before it had seen everything."""

    until: float = field(default_factory=lambda: time.monotonic() + _SECONDS)
    folders: int = _MOST_FOLDERS
    entries: int = _MOST_ENTRIES
    is_cut: bool = False

    def allow(self, entries: int) -> bool:
        """Whether the search may go on, after a folder of so many entries."""
        self.folders, self.entries = self.folders - 1, self.entries - entries
        self.is_cut |= self.folders < 0 or self.entries < 0 or time.monotonic() > self.until
        return not self.is_cut


# --- data ---


def find_data(roots: RootFolders) -> tuple[list[tuple[str, str, ImageCounts]], bool]:
    """(name, label, facts) of the folders with images or clips, and whether not all folders were searched. The counts
    include the folders inside. One that has only others in it is listed if it has several and is not the page's."""
    rows = [
        (
            SHIPPED + SHIPPED_DATA,
            f"{SHIPPED_DATA} (ships with Mezzotint)",
            _survey(SHIPPED_FOLDER, SHIPPED_FOLDER, 0, Limits(), {}),
        )
    ]
    limits = Limits()
    for root in roots.folders:
        listed: dict[Path, ImageCounts] = {}
        _survey(root, root, 0, limits, listed)
        names = [(roots.name_of(path), facts) for path, facts in sorted(listed.items())]
        rows += [(name, make_printable(roots.label(name)), facts) for name, facts in names if name is not None]
    return rows, limits.is_cut


def data_path(roots: RootFolders, name: str) -> Path:
    """The folder of a name of `find_data`. Raises OutsideFolders."""
    if name == SHIPPED + SHIPPED_DATA:
        return SHIPPED_FOLDER
    path = roots.path(name)
    if not path.is_dir():
        raise OutsideFolders(name)
    return path


def read_data(roots: RootFolders, name: str, trigger: str) -> tuple[DataFacts, ImageCounts]:
    """The facts of a folder for a proposal. Raises OutsideFolders."""
    path = data_path(roots, name)
    folder = _survey(path, path, 0, Limits(), {})
    is_shipped = name.startswith(SHIPPED)
    facts = DataFacts(
        path=SHIPPED_DATA if is_shipped else str(path),
        name=make_printable(path.name), images=folder.images, clips=folder.clips, captions=folder.captions,
        is_named=bool(trigger) and _contain(path, folder.files, trigger),
        format="metadata" if folder.has_table else None,
    )  # fmt: skip
    return facts, folder


def _survey(path: Path, top: Path, depth: int, limits: Limits, listed: dict[Path, ImageCounts]) -> ImageCounts:
    """The images and clips of a folder and of those in it; adds those to list to `listed`."""
    total, folders = _list(path, top, limits)
    is_of_images, num_below = total.samples > 0, 0
    for name in sorted(folders) if depth < _DEPTH else ():
        if limits.is_cut:
            break
        below = _survey(path / name, top, depth + 1, limits, listed)
        num_below += below.samples > 0
        total.images, total.clips = total.images + below.images, total.clips + below.clips
        total.captions += below.captions
        total.files += [f"{name}/{file}" for file in below.files[: SHOWN_IMAGES - len(total.files)]]
    if is_of_images or (num_below > 1 and depth > 0):
        listed[path] = total
    return total


def _list(path: Path, top: Path, limits: Limits) -> tuple[ImageCounts, list[str]]:
    """What is directly in a folder, without links that lead out of `top`, and the folders to look into: none for a run,
    a model, or an unreadable folder."""
    nothing = ImageCounts()
    try:
        with os.scandir(path) as entries:
            kinds = {
                entry.name: entry.is_dir(follow_symlinks=False)
                for entry in entries
                if not entry.is_symlink() or not outside.leads_out(Path(entry.path), top)
            }
    except OSError:
        return nothing, []
    if not limits.allow(len(kinds)) or kinds.keys() & {"model_index.json", "history.jsonl"}:
        return nothing, []
    stems: dict[str, list[str]] = {"images": [], "clips": []}
    images, captions = [], set()
    for name in (name for name, is_folder in kinds.items() if not is_folder and not name.startswith(".")):
        stem, ending = os.path.splitext(name)
        if (ending := ending.lower()) in decoding.SUFFIXES:
            stems["images"].append(stem)
            images.append(name)
        elif ending in clip_files.SUFFIXES:
            stems["clips"].append(stem)
        elif ending in _CAPTIONS:
            captions.add(stem)
    samples = [*stems["images"], *stems["clips"]]
    has_table = any(name in kinds for name in _TABLES)
    captioned = len(samples) if has_table else sum(stem in captions for stem in samples)
    shown = heapq.nsmallest(SHOWN_IMAGES, images)
    own = ImageCounts(len(images), len(stems["clips"]), captioned, has_table, shown)
    return own, [name for name, is_folder in kinds.items() if is_folder and _is_searched(name)]


def _is_searched(name: str) -> bool:
    return not name.startswith(".") and name not in _SKIPPED


def _contain(path: Path, files: list[str], trigger: str) -> bool:
    """Whether the captions beside the first images all contain a text."""
    texts = []
    for file in files[:_READ_CAPTIONS]:
        for ending in _CAPTIONS:
            with suppress(OSError, ValueError):
                caption = (path / file).with_suffix(ending)
                texts.append(outside.read_text(caption, limit=_CAPTION_BYTES, within=path))
    return bool(texts) and all(trigger.lower() in text.lower() for text in texts)


# --- models ---


def find_models(roots: RootFolders) -> tuple[list[FoundModel], bool]:
    """The models, what looks like one and cannot be trained, and whether not all folders were searched."""
    rows = [read_model(roots, SHIPPED + SHIPPED_MODEL)]
    limits = Limits()
    for root in roots.folders:
        pending = [(root, 0)]
        while pending and not limits.is_cut and len(rows) < _MOST_FILES:
            path, depth = pending.pop()
            folders, models = _list_models(path, limits)
            rows += [_read_model(roots, name, one) for one in models if (name := roots.name_of(one)) is not None]
            pending += [(path / name, depth + 1) for name in sorted(folders, reverse=True) if depth < _DEPTH]
    return [_with_config(row, rows) for row in rows], limits.is_cut or len(rows) >= _MOST_FILES


def _with_config(row: FoundModel, rows: list[FoundModel]) -> FoundModel:
    """A single file of a flow-matching model with the first folder of its family, for parts that the file lacks."""
    facts = row.facts
    if facts is None or not facts.is_file or not family_spec(facts.family).is_flow_matching:
        return row
    folders = (one.facts for one in rows if one.facts is not None and not one.facts.is_file)
    config = next((one.path for one in folders if one.family == facts.family and not one.is_distilled), "")
    return replace(row, facts=replace(facts, config=config))


def read_model(roots: RootFolders, name: str) -> FoundModel:
    """The model with a name. Raises OutsideFolders."""
    if name == SHIPPED + SHIPPED_MODEL:
        about = "ships with Mezzotint; coloured shapes of 64 pixels, which a processor trains in minutes"
        facts = ModelFacts(
            path=SHIPPED_MODEL, label=SHIPPED_MODEL, family=_kinds().family_at(MODELS / SHIPPED_MODEL) or "",
            shipped=SHIPPED_MODEL,
        )  # fmt: skip
        return FoundModel(name, SHIPPED_MODEL, about, facts)
    return _read_model(roots, name, roots.path(name))


def _list_models(path: Path, limits: Limits) -> tuple[list[str], list[Path]]:
    """The folders to look into, and what may be a model: the folder itself, or files in it."""
    try:
        with os.scandir(path) as entries:
            kinds = {entry.name: entry.is_dir(follow_symlinks=False) for entry in entries}
    except OSError:
        return [], []
    if not limits.allow(len(kinds)) or "history.jsonl" in kinds:
        return [], []
    if "model_index.json" in kinds:
        return [], [path]
    suffixes = weights_formats.readable_suffixes()
    files = [name for name, is_folder in kinds.items() if not is_folder and name.lower().endswith(suffixes)]
    shards = {name for name in files if "-of-" in name}
    return (
        [name for name, is_folder in kinds.items() if is_folder and _is_searched(name)],
        [path / name for name in sorted(set(files) - shards)],
    )


def _read_model(roots: RootFolders, name: str, path: Path) -> FoundModel:
    label = make_printable(roots.label(name))
    try:
        _refuse_links(roots, path)
        if not _is_utf8(str(path)):
            return FoundModel(name, label, "its name is not UTF-8; rename it", None)
        facts, about = _read_folder(path, label) if path.is_dir() else _read_file(path, label)
    except (MezzotintError, OSError, ValueError, RecursionError) as error:
        why = str(error.message if isinstance(error, MezzotintError) else error).removeprefix(f"{path}: ")
        return FoundModel(name, label, f"not recognised: {make_printable(why)[:300]}", None)
    return FoundModel(name, label, about, facts)


def _refuse_links(roots: RootFolders, path: Path) -> None:
    """Raises OSError if a file that is read leads out of the folders of the page."""
    files = [path / name for name in ("model_index.json", *_CONFIGS)] if path.is_dir() else [path]
    if any(roots.name_of(file) is None for file in files):
        raise OSError("it is a link that leads out of the folders of this page")


def _read_folder(path: Path, label: str) -> tuple[ModelFacts | None, str]:
    family = _kinds().family_at(path)
    index, *_ = (_json(path / name) for name in ("model_index.json",))
    pipeline = str(index.get("_class_name", ""))
    if family is None:
        return None, f"not recognised: a folder of {make_printable(pipeline)[:80] or 'an unknown model'}"
    spec = family_spec(family)
    unet, scheduler = _json(path / "unet/config.json"), _json(path / "scheduler/scheduler_config.json")
    refusal = _kinds().describe_folder(index, unet, family) if unet else None
    if refusal is not None:
        return None, f"not a model that is trained here: {make_printable(refusal)}"
    side = unet.get("sample_size")
    is_distilled = spec.distilled is not None and spec.distilled.marks_distilled(path)
    facts = ModelFacts(
        path=str(path), label=label, family=family, pipeline=pipeline,
        prediction=str(scheduler.get("prediction_type", "")),
        side=8 * side if isinstance(side, int) and 8 <= side <= 512 else None, is_distilled=is_distilled,
    )  # fmt: skip
    distilled = ", distilled" if is_distilled else ""
    return facts, f"{spec.label}{distilled}, a folder of {format_bytes(_size(path))}"


def _read_file(path: Path, label: str) -> tuple[ModelFacts | None, str]:
    if path.suffix.lower() in weights_formats.PICKLED:
        return None, "a pickled file, which is not opened here; `mezzotint convert` makes a .safetensors file of it"
    kinds = _kinds()
    header = kinds.read_header(path)
    family = kinds.family_of(header.keys())
    if family is None or (family_spec(family).layout and kinds.refusal(header, family) is not None):
        return None, f"not a model to train: {make_printable(kinds.describe_tensors(header))}"
    about = f"{family_spec(family).label}, a file of {format_bytes(path.stat().st_size)}"
    return ModelFacts(path=str(path), label=label, family=family, is_file=True), about


def find_cards() -> list[dict[str, Any]]:
    """The graphics cards of this computer that torch can use: {name, gb}, with GB = 10⁹ bytes."""
    import torch

    if not torch.cuda.is_available():
        return []
    cards = map(torch.cuda.get_device_properties, range(torch.cuda.device_count()))
    return [{"name": make_printable(card.name), "gb": round(card.total_memory / 10**9)} for card in cards]


def _kinds() -> Any:
    """The module that recognises models. Its import brings torch, which the page can do without until it is needed."""
    from mezzotint.weights import kinds

    return kinds


def _json(path: Path) -> dict[str, Any]:
    """A JSON object; empty if there is none."""
    with suppress(OSError, ValueError):
        value = outside.read_json(path)
        return value if isinstance(value, dict) else {}
    return {}


def _size(path: Path) -> int:
    """Bytes of the files in a folder and in its components."""
    total = 0
    for folder in (path, *(Path(one.path) for one in os.scandir(path) if one.is_dir(follow_symlinks=False))):
        with suppress(OSError), os.scandir(folder) as entries:
            total += sum(one.stat().st_size for one in entries if one.is_file())
    return total


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
