"""Generates missing class images with the model itself before a run opens its data (`data.prior`).

They are written to the folder of class images as class-00000.png and so on, with their sampling settings as metadata.
Existing files are never changed.
"""

from __future__ import annotations

import gc
import math
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import torch
from PIL import Image

from mezzotint import durable, fault_injection
from mezzotint.data.files.listing import walk
from mezzotint.data.files.masks import is_named_mask
from mezzotint.data.media import decoding
from mezzotint.diffusion.flow_objective import objective_of
from mezzotint.errors import DatasetError, WeightsError
from mezzotint.families.base import ModelFamily
from mezzotint.families.shared.learned_tokens import add_to
from mezzotint.runtimes.base import Runtime
from mezzotint.sampling import image_files
from mezzotint.sampling.requests import Request, Sampling, embed_prompts
from mezzotint.sampling.sample import as_bytes, describe_non_finite, sample_latents
from mezzotint.settings.base import with_values
from mezzotint.settings.counting import format_count, format_duration
from mezzotint.settings.recipe import Recipe
from mezzotint.settings.sections.subjects import PriorSettings
from mezzotint.shapes import Size
from mezzotint.tasks import holding
from mezzotint.tasks.assemble import family_class, open_files, refuse_unfit
from mezzotint.training.precision.policy import Precision

_NAME = re.compile(r"class-[0-9]{5,}\.png")
_REPORT_SECONDS = 60.0
_COMPARED = ("prompt", "negative_prompt", "steps", "guidance", "solver")
"""Metadata of a class image that should equal the recipe's settings."""


def list_missing(recipe: Recipe) -> list[int]:
    """The numbers of the class images to generate, so that there are `data.prior.num_class_images` together with
    other images in the folder. Empty where the recipe generates none."""
    prior = recipe.data.prior
    if not prior.num_class_images:
        return []
    names = _list_existing(recipe)
    others = sum(not _NAME.fullmatch(name) for name in names)
    return [n for n in range(prior.num_class_images - others) if _name(n) not in names]


def _folder(recipe: Recipe) -> Path:
    """The folder of generated class images."""
    assert recipe.data.prior.path is not None, "set when the recipe's paths were resolved"
    return recipe.data.prior.path.expanduser()


def _list_existing(recipe: Recipe) -> list[str]:
    """The images in the folder of class images, without masks."""
    try:
        names = walk(_folder(recipe), decoding.SUFFIXES).names
    except DatasetError:  # a missing folder is created later
        return []
    return [name for name in names if recipe.data.mask.source != "files" or not is_named_mask(name)]


def of_other_settings(recipe: Recipe) -> str:
    """A note on class images that were generated with another prompt, or other settings of `sample`, than the
    recipe's; "" if there are none."""
    prior, sample = recipe.data.prior, recipe.sample
    if not prior.num_class_images:
        return ""
    expected = image_files.generation_facts(Request(prior.class_prompt, Size(1, 1), sample.negative_prompt), sample)
    count, example = 0, ""
    for name in filter(_NAME.fullmatch, _list_existing(recipe)):
        with suppress(OSError, AttributeError), Image.open(_folder(recipe) / name) as image:
            facts = image_files.read_record(image)
            other = next((key for key in _COMPARED if facts.get(key, expected[key]) != expected[key]), None)
            if other is not None:
                count += 1
                example = example or f"{other} {facts[other]!r}, now {expected[other]!r}"
    if not count:
        return ""
    return (
        f"{prior.path}: {format_count(count, 'class image')} in it were generated with other settings ({example}); "
        "they are kept and trained with data.prior.class_prompt as caption; to generate new ones, move them away"
    )


def prepare_for_check(recipe: Recipe) -> tuple[Recipe, list[str]]:
    """A recipe whose data can be examined before its class images are generated, and notes about them. While there
    are no class images, the recipe is without `data.prior`."""
    numbers, prior = list_missing(recipe), recipe.data.prior
    others = [sentence] if (sentence := of_other_settings(recipe)) else []
    if not numbers:
        return recipe, others
    note = _warning(recipe, len(numbers))
    if len(numbers) < prior.num_class_images:
        return recipe, [f"{note}. The counts here include only existing images", *others]
    without = with_values(recipe, {"data.prior": PriorSettings()})
    return without, [f"{note}. None exist yet: the counts and lengths here are without them"]


def _warning(recipe: Recipe, count: int) -> str:
    """What generating `count` class images costs, and how to avoid it."""
    prior, sample = recipe.data.prior, recipe.sample
    passes = count * sample.steps * (1 if sample.guidance[0] in (0.0, 1.0) else 2)
    return (
        f"{format_count(count, 'class image')} of {prior.class_prompt!r} will be generated into {prior.path} before "
        f"training starts: {sample.steps} steps each, about {passes:,} passes of the model, which can take hours on a "
        "CPU. To avoid it, put images of your own into that folder, set data.prior.path to a folder that has some, "
        "or lower data.prior.num_class_images"
    )


def generate(
    recipe: Recipe, runtime: Runtime, say: Callable[[str], None], report: Callable[[str, bool], None] | None = None
) -> None:
    """Generates the missing class images, each process its share, with `recipe.sample` and the run's seed.

    Noise is addressed by (seed, image number), so neither the number of processes nor an interruption changes it. Each
    image is written as soon as it is generated. say: prints a line on the first process. report: shows a progress line;
    its flag is whether the line is due where lines are only appended; None prints due lines by `say`. Raises
    StorageError, RecipeError E1455 if another process has written a file meanwhile, WeightsError E1449 for pixels that
    are not finite.
    """
    numbers = list_missing(recipe)
    if runtime.is_first and (sentence := of_other_settings(recipe)):
        say(f"note: {sentence}")
    runtime.barrier()  # all processes count before any of them generates
    if not numbers:
        return
    folder = _folder(recipe)
    with durable.storage_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    say(f"note: {_warning(recipe, len(numbers))}")
    size = recipe.sample.batch_size
    # complete blocks, even of partly missing ones: batches are the same after an interruption
    blocks = sorted({number // size for number in numbers})[runtime.rank :: runtime.world_size]
    of_process = [n for n in numbers if n // size in blocks]
    suffix = " of this process" if runtime.world_size > 1 else ""
    progress = _GenerationProgress(
        len(of_process), suffix, report or (lambda line, is_due: say(line) if is_due else None)
    )
    for contents in _generate(recipe, runtime.device, blocks, progress) if of_process else ():
        written = [number for number in contents if number in of_process]
        for number in written:
            path = folder / _name(number)
            durable.write_new(path, contents[number], code="E1455", remedy="start again to count the images again")
            fault_injection.reach("class.image")
        progress.advance(len(written))
    runtime.barrier()
    gc.collect()
    if runtime.device.type == "cuda":
        torch.cuda.empty_cache()


class _GenerationProgress:
    """Reports how many class images are done and the time left: for each block; due for the first, the last, and once
    a minute."""

    def __init__(
        self, total: int, suffix: str, report: Callable[[str, bool], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._total, self._suffix, self._report, self._clock = total, suffix, report, clock
        self._done = 0
        self._due = -math.inf
        self.start()

    def start(self) -> None:
        """Starts the clock, after the model is loaded."""
        self._started = self._clock()

    def advance(self, count: int) -> None:
        """Counts further images and reports."""
        self._done += count
        now, left = self._clock(), self._total - self._done
        is_due = not left or now >= self._due
        if is_due:
            self._due = now + _REPORT_SECONDS
        time_left = f", about {format_duration((now - self._started) / self._done * left)} left" if left else ""
        self._report(f"class images: {self._done} of {self._total}{self._suffix}{time_left}", is_due)


def _generate(
    recipe: Recipe, device: torch.device, blocks: Sequence[int], progress: _GenerationProgress
) -> Iterator[dict[int, bytes]]:
    """For each block the PNG files by number. progress: is started when the model is loaded."""
    files = open_files(recipe)
    family = family_class(recipe).load(files)
    add_to(family, recipe.model)
    refuse_unfit(recipe, family.grid)
    precision, settings = Precision.of(recipe.run), recipe.sample
    holding.freeze(family, recipe, precision, device)
    objective = objective_of(recipe.objective, family.schedule, recipe.model.prediction or family.prediction).to(device)
    sampling = Sampling(objective.schedule, objective.parameterization, device, settings)
    progress.start()
    for block in blocks:
        numbers = range(block * settings.batch_size, (block + 1) * settings.batch_size)
        requests = embed_prompts(family, [_request(recipe, family, number) for number in numbers])
        with precision.autocast(device):
            latents = sample_latents(family, requests, sampling)
        decoded = list(zip(requests, family.decode_media(latents), strict=True))
        if problem := next(filter(None, (describe_non_finite(pixels) for _, pixels in decoded)), ""):
            raise WeightsError(f"class images: {problem}", code="E1449")
        facts = {"drawn_as": "class image"}
        yield {
            r.index: image_files.png(as_bytes(pixels), image_files.generation_facts(r, settings) | facts)
            for r, pixels in decoded
        }


def _request(recipe: Recipe, family: ModelFamily, number: int) -> Request:
    """A request of the model's native size, or else of the training resolution."""
    side = max(1, round(max(recipe.data.resolution) / family.grid.side)) * family.grid.side
    native = family.native_size or Size(side, side)
    prompt, negative = recipe.data.prior.class_prompt, recipe.sample.negative_prompt
    return Request(prompt, Size(native.width, native.height), negative, recipe.run.seed, number)


def _name(number: int) -> str:
    return f"class-{number:05d}.png"
