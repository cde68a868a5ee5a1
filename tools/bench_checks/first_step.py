"""What stands between the command and the first step of a run over a million samples whose latents and texts are
cached, on a warm machine: the second start of the same recipe. Seconds of the clock and of the processor, of processes
of their own; over a thousand shards, and over two million files.

The images are names for a few files, the index and the entries are made up (`simulate_scale.py`): what a start reads
of them is what it would read of others."""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

import simulate_scale
from mezzotint.data.catalogue import catalogue as catalogues
from mezzotint.data.catalogue import indexing
from mezzotint.data.catalogue.catalogue import Catalogue
from mezzotint.data.files import columns
from mezzotint.data.files.columns import TextBuilder
from mezzotint.settings.base import with_values
from mezzotint.settings.reading.read import resolve_paths
from mezzotint.settings.recipe import Recipe
from mezzotint.tasks import assemble
from mezzotint.tasks.cache import inventory
from mezzotint.tasks.reading.arguments import parse

SAMPLES = 1_000_000
ROUNDS = 3
IN_A_FOLDER = 1000
TO_THE_STEP = """
import os, sys
from mezzotint import cli
from mezzotint.training.recovery import Recovery
take_step = Recovery.run_step_or_retry
def step(*words):
    take_step(*words)
    os._exit(0)
Recovery.run_step_or_retry = step
cli.main(sys.argv[1:])
os._exit(1)
"""


def rows(samples: int = SAMPLES, rounds: int = ROUNDS) -> list[tuple[str, str, str]]:
    """(mark, goal, figure) of each mark."""
    return [row for form in NAMES for row in _rows(form, samples, rounds)]


def _rows(form: str, samples: int, rounds: int) -> list[tuple[str, str, str]]:
    with tempfile.TemporaryDirectory(dir=".") as name:
        folder = Path(name).resolve()
        words = prepare(folder, samples, form)
        few = [*words, f"data.path={folder / 'few'}"]
        start(folder, words)  # looks at every entry, and remembers that all are there
        start(folder, few)
        times = [(start(folder, words), start(folder, few)) for _ in range(rounds)]
    wall, processor = (statistics.median(each[0][i] for each in times) for i in (0, 1))
    wall_few, processor_few = (statistics.median(each[1][i] for each in times) for i in (0, 1))
    mark = f"command to first step, {samples:,} samples, cached, {form}"
    return [
        (mark, "≤ 5 s", f"{wall:.2f} s, {processor:.2f} CPU s"),
        ("the same with 64 samples", "", f"{wall_few:.2f} s, {processor_few:.2f} CPU s"),
    ]


def prepare(folder: Path, samples: int, form: str) -> list[str]:
    """A data set of so many samples below a folder, its index and its cache. Returns the words of its recipe."""
    simulate_scale.write_images(folder / "few", 64)
    names = NAMES[form](folder / "images", folder / "few", samples)
    words = ["tiny_cpu", f"data.format={form}",
             f"data.path={folder / 'images'}", f"data.cache.path={folder / 'cache'}", "data.crop=center",
             "data.flip=0", "data.captions.dropout=0", "data.cache.latents=true", "data.cache.text=true",
             "run.steps=2"]  # fmt: skip
    start(folder, [*words, f"data.path={folder / 'few'}"])  # says how entries look
    recipe = resolve_paths(parse(words, "train"))
    catalogue = _catalogue(recipe, names, folder)
    every = np.arange(len(catalogue), dtype=np.int32)
    caches = assemble.open_caches(recipe, assemble.open_files(recipe))
    assert caches.latents is not None
    assert caches.text is not None
    simulate_scale.fill_in_name(catalogue, recipe.data, caches.latents)
    stored = caches.text.rows()
    assert stored is not None
    captions = inventory.text_entries(catalogue, every, caches.text, ())
    simulate_scale.name_entries(stored.stores[-1], captions.addresses)
    return words


def start(folder: Path, words: list[str]) -> tuple[float, float]:
    """Seconds from the command to the end of its first step: of the clock, and of the processor."""
    with tempfile.TemporaryDirectory(dir=folder) as run:
        line = [sys.executable, "-c", TO_THE_STEP, "train", *words, f"run.folder={run}/run"]
        before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
        subprocess.run(line, check=True, stdout=subprocess.DEVNULL)
        wall, after = time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _in_files(folder: Path, few: Path, samples: int) -> list[tuple[str, str]]:
    """Images with captions below a folder, each a further name for one of a few files. Returns key and path of
    each."""
    names, sources = [], sorted(few.glob("*.png"))
    for number in range(samples):
        place = folder / f"{number // IN_A_FOLDER:06d}"
        if not number % IN_A_FOLDER:
            place.mkdir(parents=True)
        source = sources[number % len(sources)]
        for ending in (".png", ".txt"):
            os.link(source.with_suffix(ending), place / f"{number:08d}{ending}")
        names.append((f"{place.name}/{number:08d}.png",) * 2)
    return names


def _in_shards(folder: Path, few: Path, samples: int) -> list[tuple[str, str]]:
    """Shards of samples below a folder, each a further name for one. Returns key and path of each sample."""
    with tarfile.open(few / "few.tar", "w") as shard:
        for path in sorted(few.iterdir()):
            if path.suffix != ".tar":
                shard.add(path, path.name)
                path.unlink()
    folder.mkdir()
    for number in range(-(-samples // IN_A_FOLDER)):
        os.link(few / "few.tar", folder / f"{number:06d}.tar")
    return [(f"{number:08d}", f"{number // IN_A_FOLDER:06d}.tar") for number in range(samples)]


NAMES = {"webdataset": _in_shards, "image-folder": _in_files}
"""What makes a data set, by its format."""


def _catalogue(recipe: Recipe, names: Sequence[tuple[str, str]], folder: Path) -> Catalogue:
    """The data set's index where a start looks for it: the columns of the few images, with keys, paths and captions
    of their own."""
    indexes = assemble.cache_folder(recipe) / "catalogues"
    few = with_values(recipe.data, {"path": folder / "few"})
    table, about = columns.read(catalogues.build(few, indexes, workers=1).folder)
    wide = simulate_scale.wide_columns(table, len(names))
    keys, paths, captions = TextBuilder(), TextBuilder(), TextBuilder()
    for number, (key, path) in enumerate(names):
        keys.append(key)
        paths.append(path)
        captions.append(f"the image with the number {number}, of a shape in a colour, on a ground")
    for column, texts in (("key", keys), ("path", paths), ("caption", captions)):
        wide |= texts.texts().columns(column)
    sources = indexing.sources_of(recipe.data)
    place = indexes / indexing.lineage(sources, recipe.data) / indexing.address(sources, recipe.data)
    columns.write(place, wide, about)
    return Catalogue.open(place, [source.root for source in sources])


if __name__ == "__main__":
    for row in rows(*map(int, sys.argv[1:])):
        print(*row, sep="  ")
