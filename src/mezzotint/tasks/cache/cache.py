"""The verb `cache`: encode the pictures and captions of a recipe once, ahead of the training, and say how many were
made and why. `train` fills the cache through the same `fill` before its first step."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import closing

import numpy as np
from numpy.typing import NDArray

from mezzotint.data import findings
from mezzotint.data.catalogue.catalogue import Catalogue
from mezzotint.data.findings.captions import of_lost_words
from mezzotint.errors import RecipeError, WeightsError
from mezzotint.runtimes.base import Launch, Runtime, open_runtime
from mezzotint.settings.reading.read import Reading, located
from mezzotint.settings.recipe import Recipe
from mezzotint.settings.sections.data import DataSettings
from mezzotint.tasks import assemble
from mezzotint.tasks.assemble import Caches, Dataset
from mezzotint.tasks.cache import carrying, class_pictures, inventory, text_files
from mezzotint.tasks.cache._filling import VERIFIED_BYTES, Worker, fill
from mezzotint.tasks.prompts import long_captions, previews
from mezzotint.tasks.reading.arguments import parse
from mezzotint.weights.model_files import ModelFiles

Seen = Iterable[tuple[Catalogue, NDArray[np.int32], DataSettings]]
"""Rows of catalogues that a run sees, with the settings of each."""


def run(arguments: Sequence[str]) -> int:
    """`mezzotint cache RECIPE key=value …`. Under torchrun each process encodes its share.

    Every entry is read and checked, not only looked for. Raises RecipeError E1306 when the recipe caches nothing, and
    as `fill` does.
    """
    return encode(parse(arguments, "cache"))


def encode(reading: Reading) -> int:
    """Fills the caches of a recipe. Raises as `run`."""
    recipe = located(reading)
    if not (recipe.data.cache.latents or recipe.data.cache.text):
        raise RecipeError(
            "the recipe caches nothing; add data.cache.latents=true, data.cache.text=true, or both", code="E1306"
        )
    with closing(open_runtime(recipe.run, Launch.read())) as runtime:
        for note in reading.notes if runtime.is_first else ():
            _aloud(f"note: {note}")
        _fill(recipe, runtime)
    return 0


def _fill(recipe: Recipe, runtime: Runtime) -> None:
    """Fills the caches of a recipe and checks every entry. Raises as `fill_for`."""
    say = _aloud if runtime.is_first else lambda line: None
    files = assemble.open_files(recipe)
    text_files.make(recipe, files, runtime, say)
    class_pictures.draw(recipe, runtime, say)
    dataset = carrying.open_dataset(recipe, runtime)
    caches = assemble.open_caches(recipe, files)
    draws = caches.latents is not None and any(caches.latents.seeds)
    if recipe.run.seed == -1 and (draws or recipe.data.max_samples is not None):
        raise RecipeError(
            "run.seed is -1, drawn when a run starts, and what is cached depends on it (crops, flips, kept draws, or "
            "which samples data.max_samples takes); "
            "write run.seed=NUMBER, or let mezzotint train fill the cache",
            code="E1307",
        )
    if caches.text is not None and runtime.is_first and not assemble.only_texts_of_files(recipe):
        try:
            tokenizers = assemble.family_class(recipe).load(files, only=[])
        except WeightsError:  # what is missing is said where it is needed
            tokenizers = None
        if tokenizers is not None:
            lost = long_captions.lost_words(tokenizers, dataset.catalogue, recipe.data.captions)
            for line in findings.as_notes(of_lost_words(dataset.catalogue, lost, recipe.data.captions)):
                say(f"note: {line}")
    fill_for(recipe, files, runtime, dataset, caches, say, checks=True)


def _aloud(line: str) -> None:
    print(line, flush=True)


def fill_for(
    recipe: Recipe, files: ModelFiles, runtime: Runtime, dataset: Dataset, caches: Caches, say: Callable[[str], None],
    *, checks: bool,
) -> dict[str, bool]:  # fmt: skip
    """Fills the caches with everything that a run sees: what is trained, what is measured, preview prompts. checks:
    whether every entry is read, however many they are. say: of the first process. Returns what a
    history has to say of it: `cache_repeats`, where encoders do not repeat themselves (`CacheSummary.repeats`)."""
    prompts, seen = previews.captions(recipe, dataset), inventory.in_use(recipe, dataset)
    return fill_rows(recipe, files, runtime, seen, caches, say, prompts, checks=checks)


def fill_rows(
    recipe: Recipe, files: ModelFiles, runtime: Runtime, seen: Seen, caches: Caches, say: Callable[[str], None],
    captions: Sequence[str] = (), *, checks: bool = False,
) -> dict[str, bool]:  # fmt: skip
    """Fills the caches that there are with some rows, and with captions besides. Returns as `fill_for`."""
    repeats = True
    if caches.latents is None and caches.text is None:
        return {}
    for catalogue, rows, settings in seen:
        worker = Worker(
            catalogue,
            settings,
            load=assemble.encoders(recipe, files, runtime.device),
            device=runtime.device,
            encoded=assemble.encoded_spec(recipe, files),
            rank=runtime.rank,
            world_size=runtime.world_size,
            barrier=runtime.barrier,
            share=runtime.share,
            gather=runtime.gather,
            say=say,
        )
        summary = fill(worker, rows, caches, captions, verify_bytes=None if checks else VERIFIED_BYTES)
        captions = ()
        repeats &= summary.repeats
        for line in summary.lines():
            say(line)
    carrying.carry(recipe, runtime)
    return {} if repeats else {"cache_repeats": False}
