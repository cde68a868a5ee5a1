"""Class pictures that the model draws itself where there are too few, before a run looks at its data (`data.prior`).

They lie in the folder of class pictures as class-00000.png and so on, and say how they were drawn. What lies there
stays, whoever made it.
"""

from __future__ import annotations

import gc
import math
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress

import torch
from PIL import Image

from mezzotint import durable, fault_injection
from mezzotint.data.files.listing import walk
from mezzotint.data.files.masks import is_named_mask
from mezzotint.data.media import decoding
from mezzotint.diffusion.flow_objective import objective_of
from mezzotint.errors import DatasetError
from mezzotint.families.base import ModelFamily
from mezzotint.families.shared.new_words import add_to
from mezzotint.runtimes.base import Runtime
from mezzotint.sampling import pictures
from mezzotint.sampling.requests import Request, Sampling, embed_prompts
from mezzotint.sampling.sample import as_bytes, sample_latents
from mezzotint.settings.base import with_values
from mezzotint.settings.counting import counted, duration
from mezzotint.settings.recipe import Recipe
from mezzotint.settings.sections.subjects import PriorSettings
from mezzotint.shapes import Size
from mezzotint.tasks import holding
from mezzotint.tasks.assemble import family_class, open_files, refuse_unfit
from mezzotint.training.precision.policy import Precision

_NAME = re.compile(r"class-[0-9]{5,}\.png")
_REPORT_SECONDS = 60.0
_COMPARED = ("prompt", "negative_prompt", "steps", "guidance", "solver")
"""What of a class picture's record should be as the recipe has it."""


def missing(recipe: Recipe) -> list[int]:
    """The numbers of the class pictures that are still to be drawn: with those of others there are then
    `data.prior.num_class_images`. Empty where the recipe has none drawn."""
    prior = recipe.data.prior
    if not prior.num_class_images:
        return []
    names = _there(recipe)
    others = sum(not _NAME.fullmatch(name) for name in names)
    return [n for n in range(prior.num_class_images - others) if _name(n) not in names]


def _there(recipe: Recipe) -> list[str]:
    """The pictures in the folder of class pictures, masks left out."""
    try:
        names = walk(recipe.data.prior.path[0], decoding.SUFFIXES).names
    except DatasetError:  # a folder that is not there is made
        return []
    return [name for name in names if recipe.data.mask.source != "files" or not is_named_mask(name)]


def of_other_settings(recipe: Recipe) -> str:
    """What to print of class pictures that were generated with another prompt, or with other settings of `sample`, than
    the recipe's; "" where there are none."""
    prior, sample = recipe.data.prior, recipe.sample
    if not prior.num_class_images:
        return ""
    expected = pictures.facts(Request(prior.class_prompt, Size(1, 1), sample.negative_prompt), sample)
    count, example = 0, ""
    for name in filter(_NAME.fullmatch, _there(recipe)):
        with suppress(OSError, AttributeError), Image.open(prior.path[0].expanduser() / name) as image:
            facts = pictures.recorded_in(image)
            other = next((key for key in _COMPARED if facts.get(key, expected[key]) != expected[key]), None)
            if other is not None:
                count += 1
                example = example or f"{other} {facts[other]!r}, now {expected[other]!r}"
    if not count:
        return ""
    return (
        f"{prior.path[0]}: {counted(count, 'class picture')} there were generated with other settings ({example}); "
        "they stay and are trained with data.prior.class_prompt as caption; to have new ones, move them away"
    )


def as_checked(recipe: Recipe) -> tuple[Recipe, list[str]]:
    """A recipe whose data can be looked at before its class pictures are generated, and what to print about them: while
    there are none, without them."""
    numbers, prior = missing(recipe), recipe.data.prior
    others = [sentence] if (sentence := of_other_settings(recipe)) else []
    if not numbers:
        return recipe, others
    note = _warning(recipe, len(numbers))
    if len(numbers) < prior.num_class_images:
        return recipe, [f"{note}. The counts here are those of the pictures that are there", *others]
    without = with_values(recipe, {"data.prior": PriorSettings()})
    return without, [f"{note}. There are none yet: the counts and lengths here are those without them"]


def _warning(recipe: Recipe, count: int) -> str:
    """What generating so many class pictures takes, and how to avoid it."""
    prior, sample = recipe.data.prior, recipe.sample
    passes = count * sample.steps * (1 if sample.guidance[0] in (0.0, 1.0) else 2)
    return (
        f"{counted(count, 'class picture')} of {prior.class_prompt!r} will be generated into {prior.path[0]} before "
        f"training starts: {sample.steps} steps each, about {passes:,} passes of the model, which can take hours on a "
        "CPU. To avoid it, put pictures of your own into that folder, name a folder that has some (data.prior.path), "
        "or lower data.prior.num_class_images"
    )


def draw(
    recipe: Recipe, runtime: Runtime, say: Callable[[str], None], report: Callable[[str, bool], None] | None = None
) -> None:
    """Generates the class pictures that are missing, each process its share, by `recipe.sample` and the seed of the
    run.

    Noise is addressed by (seed, number of the picture), so that neither the number of processes nor an interruption
    changes it. Every picture is kept at once. say: of the first process. report: shows a line of progress, and whether
    it is due where there are lines only; None prints those that are due by `say`. Raises StorageError, RecipeError
    E1455 where a file came in between.
    """
    numbers = missing(recipe)
    if runtime.is_first and (sentence := of_other_settings(recipe)):
        say(f"note: {sentence}")
    runtime.barrier()  # before any process draws, all have counted
    if not numbers:
        return
    folder = recipe.data.prior.path[0].expanduser()
    with durable.storage_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    say(f"note: {_warning(recipe, len(numbers))}")
    size = recipe.sample.batch_size
    # whole blocks, of whichever is missing: what is drawn together is the same after an interruption
    blocks = sorted({number // size for number in numbers})[runtime.rank :: runtime.world_size]
    mine = [n for n in numbers if n // size in blocks]
    whose = " of this process" if runtime.world_size > 1 else ""
    progress = _GenerationProgress(len(mine), whose, report or (lambda line, is_due: say(line) if is_due else None))
    for contents in _drawn(recipe, runtime.device, blocks, progress) if mine else ():
        written = [number for number in contents if number in mine]
        for number in written:
            path = folder / _name(number)
            durable.write_new(path, contents[number], code="E1455", remedy="start again, which counts anew")
            fault_injection.reach("class.picture")
        progress.advance(len(written))
    runtime.barrier()
    gc.collect()
    if runtime.device.type == "cuda":
        torch.cuda.empty_cache()


class _GenerationProgress:
    """How many class pictures there are and how long the others take: reported for each block, due for the first and
    the last and once a minute."""

    def __init__(
        self, total: int, whose: str, report: Callable[[str, bool], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._total, self._whose, self._report, self._clock = total, whose, report, clock
        self._done = 0
        self._due = -math.inf
        self.start()

    def start(self) -> None:
        """The time begins here: the model is loaded."""
        self._began = self._clock()

    def advance(self, count: int) -> None:
        """So many more are done."""
        self._done += count
        now, left = self._clock(), self._total - self._done
        is_due = not left or now >= self._due
        if is_due:
            self._due = now + _REPORT_SECONDS
        time_left = f", about {duration((now - self._began) / self._done * left)} left" if left else ""
        self._report(f"class pictures: {self._done} of {self._total}{self._whose}{time_left}", is_due)


def _drawn(
    recipe: Recipe, device: torch.device, blocks: Sequence[int], progress: _GenerationProgress
) -> Iterator[dict[int, bytes]]:
    """Of each block the PNG files by number. progress: its time begins when the model is loaded."""
    files = open_files(recipe)
    family = family_class(recipe).load(files)
    add_to(family, recipe.model)
    refuse_unfit(recipe, family.grid)
    precision, settings = Precision.of(recipe.run), recipe.sample
    holding.freeze(family, recipe, precision, device)
    objective = objective_of(recipe.objective, family.schedule, recipe.model.prediction or family.prediction).to(device)
    how = Sampling(objective.schedule, objective.parameterization, device, settings)
    progress.start()
    for block in blocks:
        numbers = range(block * settings.batch_size, (block + 1) * settings.batch_size)
        requests = embed_prompts(family, [_request(recipe, family, number) for number in numbers])
        with precision.autocast(device):
            latents = sample_latents(family, requests, how)
        decoded = zip(requests, family.decode_media(latents), strict=True)
        facts = {"drawn_as": "class picture"}
        yield {r.index: pictures.png(as_bytes(pixels), pictures.facts(r, settings) | facts) for r, pixels in decoded}


def _request(recipe: Recipe, family: ModelFamily, number: int) -> Request:
    """Of the size that the model was made for, or else of the one that is trained."""
    side = max(1, round(recipe.data.resolution / family.grid.side)) * family.grid.side
    own = family.own_size or Size(side, side)
    prompt, negative = recipe.data.prior.class_prompt, recipe.sample.negative_prompt
    return Request(prompt, Size(own.width, own.height), negative, recipe.run.seed, number)


def _name(number: int) -> str:
    return f"class-{number:05d}.png"
