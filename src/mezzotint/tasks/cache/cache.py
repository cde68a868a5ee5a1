"""The verb `cache`: encode the pictures and captions of a recipe once, ahead of the training, and say how many were
made and why. `train` fills the cache through the same `fill` before its first step."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mezzotint.errors import RecipeError, WeightsError
from mezzotint.recipe.reading.read import Reading, located
from mezzotint.recipe.recipe import Recipe
from mezzotint.runtimes.base import Launch, Runtime, open_runtime
from mezzotint.tasks import assemble, held_out, long_captions
from mezzotint.tasks.assemble import Caches, Dataset
from mezzotint.tasks.cache import text_files
from mezzotint.tasks.cache._filling import VERIFIED_BYTES, CacheSummary, fill
from mezzotint.tasks.prompts import previews
from mezzotint.tasks.reading.arguments import parse
from mezzotint.weights.model_files import ModelFiles

__all__ = ["CacheSummary", "fill", "run"]


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
    runtime = open_runtime(recipe.run, Launch.read())
    try:
        if runtime.is_first:
            for note in reading.notes:
                _aloud(f"note: {note}")
        _fill(recipe, runtime)
    finally:
        runtime.close()
    return 0


def _fill(recipe: Recipe, runtime: Runtime) -> None:
    """Fills the caches of a recipe and checks every entry."""
    say = _aloud if runtime.is_first else lambda line: None
    files = assemble.open_files(recipe)
    text_files.make(recipe, files, runtime, say)
    dataset = assemble.open_dataset(recipe, runtime)
    caches = assemble.open_caches(recipe, files)
    if recipe.run.seed == -1 and caches.latents is not None and any(caches.latents.seeds):
        raise RecipeError(
            "run.seed is -1, drawn when a run starts, and what is cached depends on it (crops, flips or kept draws); "
            "write run.seed=NUMBER, or let mezzotint train fill the cache",
            code="E1307",
        )
    if caches.text is not None and runtime.is_first and not assemble.only_texts_of_files(recipe):
        _tell_of_lost_words(recipe, files, dataset, say)
    fill_for(recipe, files, runtime, dataset, caches, say, checks=True)


def _tell_of_lost_words(
    recipe: Recipe, files: ModelFiles, dataset: Dataset, say: Callable[[str], None]
) -> None:  # fmt: skip
    try:
        tokenizers = assemble.family_class(recipe).load(files, only=[])
    except WeightsError:  # what is missing is said where it is needed
        return
    for line in long_captions.note(long_captions.lost_words(tokenizers, dataset.catalogue), dataset.catalogue):
        say(f"note: {line}")


def _aloud(line: str) -> None:
    print(line, flush=True)


def fill_for(
    recipe: Recipe,
    files: ModelFiles,
    runtime: Runtime,
    dataset: Dataset,
    caches: Caches,
    say: Callable[[str], None],
    *,
    checks: bool,
) -> None:
    """Fills the caches with everything that a run sees: what is trained, what is measured, preview prompts. checks:
    whether every entry is read, however many they are. say: of the first process."""
    extra: tuple[str, ...] = previews.captions(recipe, dataset)
    for catalogue, rows, settings in held_out.in_use(recipe, dataset):
        summary = fill(
            catalogue,
            rows,
            settings,
            latents=caches.latents,
            text=caches.text,
            load=assemble.encoders(recipe, files, runtime.device),
            device=runtime.device,
            extra_captions=extra,
            rank=runtime.rank,
            world_size=runtime.world_size,
            barrier=runtime.barrier,
            say=say,
            verify_bytes=None if checks else VERIFIED_BYTES,
            encoded=assemble.encoded_spec(recipe, files),
        )
        extra = ()
        for line in summary.lines():
            say(line)
