"""Files whose writing a test interrupts (checkpoints, cache rows, exports), and what must be true of each
afterwards."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch

from mezzotint.data.cache.store import Store
from mezzotint.families.sd import Family
from mezzotint.run_folder import RunFolder
from mezzotint.runtimes import base, single
from mezzotint.settings.sections.run import RunSettings
from mezzotint.tasks.train import exports
from mezzotint.training.checkpoints import state
from mezzotint.training.checkpoints.background_save import Saves
from mezzotint.weights.folder import publishing
from support import stores
from support.model_export import export_model, files_of, tiny_model

TEMPORARY = re.compile(r"\..+\.\d+-[0-9a-f]{8}\.partial", re.DOTALL)


def digest(root: Path) -> dict[str, str]:
    """Every file and link below a folder, by its path, but what is hidden."""
    files = [path for path in sorted(root.rglob("*")) if path.is_symlink() or path.is_file()]
    shown = [path for path in files if not any(TEMPORARY.fullmatch(part) for part in path.relative_to(root).parts)]
    return {
        str(path.relative_to(root)): str(path.readlink())
        if path.is_symlink()
        else hashlib.sha256(path.read_bytes()).hexdigest()
        for path in shown
    }


def swept(folder: Path) -> None:
    """As the next start does it, when the process of before is dead."""
    RunFolder(folder).sweep()


@dataclass(frozen=True)
class Seen:
    """What a look is told. before, end: what lay there, and what lies there undisturbed. is_done: whether the work has
    said that it is."""

    before: Mapping[str, str]
    end: Mapping[str, str]
    is_done: bool = True


@dataclass(frozen=True)
class Work:
    """Something that is written into a folder. before: makes the folder ready. act: what is tried, and again after
    that. look: raises where what is to be seen in a folder is not whole. has_end: whether the folder is the same after
    each undisturbed one."""

    before: Callable[[Path], None]
    act: Callable[[Path], Any]
    look: Callable[[Path, Seen], None]
    has_end: bool = field(default=True, kw_only=True)


# --- one save -------------------------------------------------------------------------------------------------------


def tensors(step: int, rows: int = 300) -> dict[str, torch.Tensor]:
    drawn = torch.Generator().manual_seed(step)
    return {
        "w/denoiser/a": torch.randn(rows, 4, generator=drawn),
        "ema/denoiser/a": torch.randn(rows, 4, generator=drawn),
        "opt.mean/denoiser/a": torch.randn(rows, 4, generator=drawn),
        "opt.applied": torch.tensor(float(step)),
    }


def save(root: Path, *steps: int, at_once: bool = True, rows: int = 300) -> None:
    """Checkpoints as a run writes them, of which two are kept, and the best."""
    run = RunSettings.model_validate({"save": {"keep": 2, "best": True}})
    (root / "checkpoints").mkdir(exist_ok=True)
    runtime = single.Runtime(torch.device("cpu"), base.Launch(), run)
    saves = Saves(root / "checkpoints", runtime, run, lambda text: None)
    for step in steps:
        saves.begin(
            step=step, tensors=tensors(step, rows), values={"progress": {"step": step}}, recipe_digest="ab",
            at_once=at_once, losses={1: 0.1, 2: 0.3, 3: 0.2, 4: 0.05},
        )  # fmt: skip
        saves.hold()
        saves.end()


def whole_checkpoints(root: Path, seen: Seen, *, rows: int = 300) -> None:
    newest = state.newest_valid(root / "checkpoints")
    assert newest.passed_over == (), "what has a checkpoint's name is whole"
    assert newest.path is not None
    assert state.step_of(newest.path) in ((4,) if seen.is_done else (3, 4))
    best = root / "checkpoints" / "best"
    assert state.find_damage(best) is None, "the second name leads to one that is there"
    assert best.readlink().name in ("step-00000001", "step-00000004")
    for path in state.list_checkpoints(root / "checkpoints"):
        step = state.step_of(path)
        assert all(torch.equal(state.read(path).tensors[n], t) for n, t in tensors(step, rows).items())


SAVE = Work(lambda root: save(root, 1, 2, 3), lambda root: save(root, 4), whole_checkpoints)
BEHIND = replace(SAVE, act=lambda root: save(root, 4, at_once=False))

LARGE = 1000
"""Rows of tensors that are larger than the buffer of an open file (8 KiB): each is written by a call of its own, as in
the files of real models."""
UNCACHED = Work(
    lambda root: save(root, 1, 2, 3, rows=LARGE), lambda root: save(root, 4, rows=LARGE),
    partial(whole_checkpoints, rows=LARGE),
)  # fmt: skip


# --- one append to a cache ------------------------------------------------------------------------------------------


def append(root: Path, numbers: range, shard_bytes: int = 400) -> None:
    """Rows of 48 bytes into shards of eight: these go to the end of one shard and into a new one."""
    store = Store(root, shape=stores.SHAPE, dtype="fp32", shard_bytes=shard_bytes)
    try:
        for start in range(numbers.start, numbers.stop, 4):
            part = range(start, min(start + 4, numbers.stop))
            store.append(stores.addresses(part), stores.rows(part), at_once=start % 8 == 0)
    finally:
        store.close_writer()


def whole_rows(root: Path, seen: Seen, *, first: int = 6) -> None:
    """first: so many lay there before."""
    store = Store(root, shape=stores.SHAPE, dtype="fp32")
    for number in range(20):
        there = store.fetch(stores.addresses([number]))
        if isinstance(there, torch.Tensor):
            assert torch.equal(there, stores.rows([number]))
        else:
            assert number >= (20 if seen.is_done else first), f"row {number}: what lay there stays"
    assert not store.is_damaged(stores.addresses(range(20))).any()
    half = [path.name for path in store.folder.glob("*.index") if not path.with_suffix(".rows").exists()]
    assert not seen.is_done or not half, "what was begun of a shard is gone on with"


APPEND = Work(lambda root: append(root, range(6)), lambda root: append(root, range(6, 20)), whole_rows, has_end=False)
FIRST_APPEND = Work(
    lambda root: None, lambda root: append(root, range(20)), partial(whole_rows, first=0), has_end=False
)  # fmt: skip

# --- one export -----------------------------------------------------------------------------------------------------


@cache
def model() -> Any:
    return tiny_model(Family, 3)


def weights(scale: float) -> dict[str, torch.Tensor]:
    return {f"denoiser/{n}": p.detach() * scale for n, p in model().parts()["denoiser"].named_parameters()}


def as_folder(root: Path, scale: float) -> None:
    with exports.write_new_or_replace(root / "model") as target:
        export_model(model(), target, weights(scale))


def as_file(root: Path, scale: float) -> None:
    files = files_of(model())
    model().export_parts(root / "model.safetensors", ["denoiser"], files, weights=weights(scale), dtype="fp32")


def laid_out(root: Path, scale: float) -> None:
    place = root / "source" / str(scale)
    if not place.exists():
        export_model(model(), place, weights(scale))
    publishing.publish(place, root / "published")


def one_of_two(root: Path, seen: Seen) -> None:
    """The export of before, or the new one: never a mixture, never nothing."""
    assert digest(root) == seen.end or (not seen.is_done and digest(root) == seen.before)


def complete_or_closed(root: Path, seen: Seen) -> None:
    """What is laid out among others' files opens when it is complete alone. The list of what is ours is no part of the
    model."""
    if seen.is_done:
        assert digest(root) == seen.end
    elif (root / "published" / "model_index.json").exists():
        models = [{path: sha for path, sha in one.items() if publishing.LIST not in path}
                  for one in (digest(root), seen.end, seen.before)]  # fmt: skip
        assert models[0] in models[1:]


def both_sources(root: Path) -> None:
    laid_out(root, 2.0)
    laid_out(root, 1.0)


FOLDER = Work(lambda root: as_folder(root, 1.0), lambda root: as_folder(root, 2.0), one_of_two)
FIRST_FOLDER = Work(lambda root: None, lambda root: as_folder(root, 2.0), one_of_two)
SINGLE_FILE = Work(lambda root: as_file(root, 1.0), lambda root: as_file(root, 2.0), one_of_two)
PUBLISHED = Work(both_sources, lambda root: laid_out(root, 2.0), complete_or_closed)

WORKS = {
    "save": SAVE, "save-behind": BEHIND, "save-uncached": UNCACHED, "append": APPEND, "first-append": FIRST_APPEND,
    "export": FOLDER, "first-export": FIRST_FOLDER, "export-of-one-file": SINGLE_FILE, "publish": PUBLISHED,
}  # fmt: skip
