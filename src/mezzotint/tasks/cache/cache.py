"""The command `cache`: encodes the images and captions of a recipe once, before training, and reports how many were
encoded and why. `train` fills the cache through the same `fill` before its first step."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from functools import partial

import numpy as np
from numpy.typing import NDArray

from mezzotint.data import findings
from mezzotint.data.cache.entries import TextCache
from mezzotint.data.catalogue.catalogue import Catalogue
from mezzotint.data.findings.captions import of_lost_words
from mezzotint.errors import RecipeError, WeightsError
from mezzotint.runtimes.base import Launch, Runtime, open_runtime
from mezzotint.sampling.requests import Request
from mezzotint.settings.reading.read import Reading, resolve_paths
from mezzotint.settings.recipe import Recipe
from mezzotint.settings.sections.data import DataSettings
from mezzotint.tasks import assemble
from mezzotint.tasks.assemble import Caches, Dataset
from mezzotint.tasks.cache import _preview_filling, carrying, class_images, inventory, text_files
from mezzotint.tasks.cache._encoding import Encoding
from mezzotint.tasks.cache.filling import VERIFIED_BYTES, Worker, fill
from mezzotint.tasks.prompts import drift, long_captions, previews
from mezzotint.tasks.reading.arguments import parse
from mezzotint.weights.model_files import ModelFiles

UsedRows = Iterable[tuple[Catalogue, NDArray[np.int32], DataSettings]]
"""Rows of catalogues that a run uses, with the settings of each."""


def run(arguments: Sequence[str]) -> int:
    """`mezzotint cache RECIPE key=value …`. Under torchrun each process encodes its share.

    Every entry is read and verified, not only looked up. Raises RecipeError E1306 when the recipe caches nothing, and
    as `fill` does.
    """
    return encode(parse(arguments, "cache"))


def encode(reading: Reading) -> int:
    """Fills the caches of a recipe. Raises as `run`."""
    recipe = resolve_paths(reading)
    if not (recipe.data.cache.latents or recipe.data.cache.text):
        raise RecipeError(
            "the recipe caches nothing; set data.cache.latents=true, data.cache.text=true, or both", code="E1306"
        )
    with closing(open_runtime(recipe.run, Launch.read())) as runtime:
        for note in reading.notes if runtime.is_first else ():
            _print(f"note: {note}")
        _fill(recipe, runtime)
    return 0


def _fill(recipe: Recipe, runtime: Runtime) -> None:
    """Fills the caches of a recipe and verifies every entry. Raises as `fill_for`."""
    say = _print if runtime.is_first else lambda line: None
    files = assemble.open_files(recipe)
    text_files.make(recipe, files, runtime, say)
    class_images.generate(recipe, runtime, say)
    dataset = carrying.open_dataset(recipe, runtime)
    caches = assemble.open_caches(recipe, files)
    draws = caches.latents is not None and any(caches.latents.seeds)
    if recipe.run.seed == -1 and (draws or recipe.data.max_samples is not None):
        raise RecipeError(
            "run.seed is -1, so the seed is chosen when a run starts, and the cache depends on it (crops, flips, "
            "stored draws, or the samples chosen by data.max_samples); set run.seed=NUMBER, or let mezzotint train "
            "fill the cache",
            code="E1307",
        )
    if caches.text is not None and runtime.is_first and not assemble.only_texts_of_files(recipe):
        try:
            tokenizers = assemble.family_class(recipe).load(files, only=[])
        except WeightsError:  # missing files are reported where they are needed
            tokenizers = None
        if tokenizers is not None:
            lost = long_captions.count_truncated(tokenizers, dataset.catalogue, recipe.data.captions)
            for line in findings.as_notes(of_lost_words(dataset.catalogue, lost, recipe.data.captions)):
                say(f"note: {line}")
    fill_for(recipe, files, runtime, dataset, caches, say, checks=True)


def _print(line: str) -> None:
    print(line, flush=True)


def fill_for(
    recipe: Recipe, files: ModelFiles, runtime: Runtime, dataset: Dataset, caches: Caches, say: Callable[[str], None],
    *, checks: bool,
) -> dict[str, bool]:  # fmt: skip
    """Fills the caches with everything that a run uses: training and validation samples, preview prompts. checks:
    whether to read and verify every entry, for any number of bytes. say: prints a line on the first process. Returns
    entries for the run's history: `cache_repeats`, if encoding is not deterministic (`CacheSummary.repeats`)."""
    seen, used_rows = files.text_images, inventory.in_use(recipe, dataset)
    if caches.text is not None and seen is not None:
        _fill_previews(caches.text, previews.texts_with_images(recipe, dataset, seen), recipe, files, runtime)
    prompts = (*previews.captions(recipe, dataset), *drift.captions(recipe, dataset)) if seen is None else ()
    return fill_rows(recipe, files, runtime, used_rows, caches, say, prompts, checks=checks)


def _fill_previews(
    text: TextCache, requests: Sequence[Request], recipe: Recipe, files: ModelFiles, runtime: Runtime
) -> None:
    if runtime.is_first:
        load = partial(assemble.encoders(recipe, files, runtime.device), "text")
        count = len(recipe.data.condition_names)
        _preview_filling.fill(text, requests, count, load=load, encoding=Encoding(runtime.device))
    runtime.barrier()
    text.refresh()


def fill_rows(
    recipe: Recipe, files: ModelFiles, runtime: Runtime, used_rows: UsedRows, caches: Caches,
    say: Callable[[str], None], captions: Sequence[str] = (), *, checks: bool = False,
) -> dict[str, bool]:  # fmt: skip
    """Fills the existing caches with some rows, and with further captions. Returns as `fill_for`."""
    repeats = True
    if caches.latents is None and caches.text is None:
        return {}
    for catalogue, rows, settings in used_rows:
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
    carrying.upload(recipe, runtime)
    return {} if repeats else {"cache_repeats": False}
