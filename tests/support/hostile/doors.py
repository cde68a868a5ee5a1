"""The doors of the readers: the function by which verbs read such a file, and what it comes to."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mezzotint.adapters import files as adapters
from mezzotint.adapters.names import LayerNames
from mezzotint.board.reading import values
from mezzotint.cli import main
from mezzotint.data import findings
from mezzotint.data.cache import store
from mezzotint.data.cache.entries import LatentCache
from mezzotint.data.catalogue.catalogue import Catalogue, build
from mezzotint.data.findings import files
from mezzotint.data.media import clip_files, decoding
from mezzotint.diffusion.schedule import Schedule
from mezzotint.families.sd import Family
from mezzotint.families.shared.folder_files import clip_tokenizer
from mezzotint.reports import data_report
from mezzotint.run_folder import RunFolder
from mezzotint.sampling import prompt_file
from mezzotint.settings.reading import read as recipes
from mezzotint.settings.sections.data import DataSettings
from mezzotint.settings.sections.model import ModelSettings
from mezzotint.shapes import Size
from mezzotint.tasks.train import resume
from mezzotint.training.checkpoints import state
from mezzotint.weights.files import fingerprint, pickled, tensor_files
from mezzotint.weights.folder import t5
from support.hostile import adapters as of_adapters


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a reading that was not refused. skipped: names and reasons. said: all that is printed or logged."""

    skipped: tuple[tuple[str, str], ...] = ()
    said: str = ""


Door = Callable[[Path, Path], Outcome]
"""Reads what lies in a folder (the first path), and writes nowhere but in another (the second)."""


# --- data sets --------------------------------------------------------------------------------------------------------


def data(**given: Any) -> Door:
    """A data set, through its index, with the pixels of all that is used and what the reports say."""

    def door(folder: Path, work: Path) -> Outcome:
        path = folder / given.get("path", ".")
        chosen = {"resolution": 64, "buckets": {"step": 8}, "max_skipped": 1.0, "captions": {"missing": "empty"}}
        settings = DataSettings.model_validate(chosen | given | {"path": [path]})
        return looked_at(build(settings, work / "index", workers=1), settings, work)

    return door


def looked_at(catalogue: Catalogue, settings: DataSettings, work: Path) -> Outcome:
    """All rows of a data set, and its report."""
    for row in range(len(catalogue)):
        path = catalogue.path(row)
        if not clip_files.is_clip(path.name) and path.suffix != ".npy":
            pixels = decoding.whole_image(path, background="#ffffff", max_pixels=settings.max_pixels)
            assert pixels.shape == (catalogue.height[row], catalogue.width[row], 3)
        assert all(isinstance(caption, str) for caption in catalogue.captions(row))
    data_report.write(catalogue, work, settings)
    report = catalogue.report
    notes = findings.as_notes(files.of_files(report, catalogue.roots))
    said = "\n".join((*notes, (work / "data_report.jsonl").read_text("ascii")))
    return Outcome(report.skipped + report.left_out, said)


# --- recipes and lists ------------------------------------------------------------------------------------------------


def recipe(folder: Path, _work: Path) -> Outcome:
    """A recipe."""
    recipes.read(folder / "recipe.yaml")
    return Outcome()


def check(folder: Path, _work: Path) -> Outcome:
    """A recipe by the command line: what it prints must hold the sentence."""
    return line(["check", str(folder / "recipe.yaml")])


def line(words: list[str]) -> Outcome:
    """A command line that ends with status 0 or raises what it says."""
    out = io.StringIO()
    with redirect_stdout(out), redirect_stderr(out):
        status = main(words)
    assert "Traceback" not in out.getvalue(), out.getvalue()
    if status:
        raise Ended(status, out.getvalue())
    return Outcome(said=out.getvalue())


class Ended(Exception):
    """A command line has ended with a status and these words."""

    def __init__(self, status: int, words: str) -> None:
        super().__init__(words)
        self.status = status


def prompts(folder: Path, _work: Path) -> Outcome:
    """Prompts in a text or JSON."""
    (path,) = folder.glob("prompts.*")
    prompt_file.read(path)
    return Outcome()


# --- models -----------------------------------------------------------------------------------------------------------


def weights(folder: Path, _work: Path) -> Outcome:
    """A file of tensors: header, texts, name and numbers."""
    path = folder / "x.safetensors.index.json"
    path = path if path.exists() else folder / "x.safetensors"
    tensor_files.read_header(path)
    if path.suffix == ".safetensors":
        tensor_files.read_metadata(path)
    fingerprint.of_file(path)
    tensor_files.read(path)
    return Outcome()


def pickle(folder: Path, work: Path) -> Outcome:
    """A pickled file."""
    path = folder / "x.ckpt"
    if not pickled.is_pickled(path):
        tensor_files.read(path)
    else:
        tensor_files.read(pickled.as_safetensors(path, work / "store"))
    return Outcome()


def clip(folder: Path, _work: Path) -> Outcome:
    """A CLIP tokenizer."""
    tokenizer = clip_tokenizer(folder, 49408)
    tokenizer("a red fox")
    return Outcome()


def t5_tokenizer(folder: Path, _work: Path) -> Outcome:
    """A T5 tokenizer."""
    tokenizer = t5.tokenizer_in(folder, 32128)
    tokenizer("a red fox")
    return Outcome()


def model(folder: Path, _work: Path) -> Outcome:
    """The folder of a model, its configurations and what they make of sizes."""
    files = Family.files.of(ModelSettings(path=folder, weights="random"))
    for part in files.parts:
        files.shapes(part)
    _ = files.scaling, files.prediction
    Schedule.from_config(files.scheduler)
    return Outcome()


def converted(folder: Path, work: Path) -> Outcome:
    """The folder or file of a model, as `convert` reads it."""
    source = folder / "x.safetensors" if (folder / "x.safetensors").exists() else folder
    return line(["convert", str(source), str(work / "out")])


def adapter(folder: Path, _work: Path) -> Outcome:
    """An adapter, for a model of a few layers."""
    adapters.read(folder / of_adapters.NAME, LayerNames(of_adapters.SHAPES))
    return Outcome()


# --- our own ----------------------------------------------------------------------------------------------------------


def checkpoint(folder: Path, _work: Path) -> Outcome:
    """The checkpoints of a run: which one it goes on from, all of it read, and what is passed over."""
    start = resume.choose("auto", RunFolder(folder), "mezzotint train x")
    assert start.checkpoint is not None, "it began anew without a word"
    damaged: dict[Path, str] = {}
    said = list(start.sentences)
    while True:
        try:
            state.read(start.checkpoint)
            break
        except state.DamagedCheckpoint as error:  # as a run does that finds out while it loads
            damaged[start.checkpoint] = error.reason
            start = resume.choose("auto", RunFolder(folder), "mezzotint train x", damaged)
            assert start.checkpoint is not None
            said = list(start.sentences)
    return Outcome(tuple(tuple(one.removeprefix("passed over ").split(": ", 1)) for one in said), "\n".join(said))


def cache(folder: Path, _work: Path) -> Outcome:
    """A store of rows: what cannot be used counts as absent."""
    rows = store.Store(folder, shape=(4, 3), dtype="fp32")
    addresses = store.as_addresses([bytes([n]) * 32 for n in range(4)])
    entries = rows.find_valid(addresses)
    return Outcome(tuple((f"row {n}", "absent") for n in range(4) if entries[n] < 0))


def layout(folder: Path, _work: Path) -> Outcome:
    """What a cache says of its entries: without it, they are made again."""
    settings = DataSettings.model_validate({"path": [folder], "resolution": 64})
    entries = LatentCache(folder, settings, identity="vae", compute="fp32", seed=0)
    content = next(folder.glob("layout.json"), None)
    if content is not None:
        entries.folder.mkdir(parents=True, exist_ok=True)
        content.rename(entries.folder / "layout.json")
    entries.refresh()
    if entries.layout is None:
        return Outcome((("layout.json", "passed over"),))
    entries.store(Size(64, 64))
    return Outcome()


def run_folder(folder: Path, _work: Path) -> Outcome:
    """What a run keeps beside its checkpoints."""
    place = RunFolder(folder)
    place.events()
    place.attempts()
    values.read_tree(place.recipe)  # as the board does
    return Outcome()


DOORS: dict[str, Door] = {
    "image": data(), "caption": data(), "name": data(), "clip": data(format="videofolder", clips={"frames": 5}),
    "kohya": data(format="kohya"), "tar": data(format="webdataset"), "table": data(format="metadata"),
    "recipe": recipe, "check": check, "prompts": prompts, "weights": weights, "index": weights,
    "pickle": pickle, "clip-tokenizer": clip, "t5-tokenizer": t5_tokenizer, "config": model,
    "model": converted, "adapter": adapter,
    "checkpoint": checkpoint, "cache": cache, "layout": layout, "run": run_folder,
}  # fmt: skip


def words_of(error: BaseException) -> Iterator[str]:
    """All that an error says, its codes among it."""
    yield str(error)
    yield str(getattr(error, "code", ""))
    for problem in getattr(error, "problems", ()):
        yield json.dumps(problem.code)
