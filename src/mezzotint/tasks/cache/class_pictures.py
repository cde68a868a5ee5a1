"""Class pictures that the model draws itself where there are too few, before a run looks at its data (`data.prior`).

They lie in the folder of class pictures as class-00000.png and so on, and say how they were drawn. What lies there
stays, whoever made it.
"""

from __future__ import annotations

import gc
import re
from collections import Counter
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
from mezzotint.recipe.base import with_values
from mezzotint.recipe.counting import counted
from mezzotint.recipe.recipe import Recipe
from mezzotint.recipe.sections.subjects import PriorSettings
from mezzotint.runtimes.base import Runtime
from mezzotint.sampling import pictures
from mezzotint.sampling.sample import Request, Sampling, as_bytes, embedded, sample_latents
from mezzotint.shapes import Size
from mezzotint.tasks.assemble import family_class, open_files, refuse_unfit
from mezzotint.training.precision import attention
from mezzotint.training.precision.policy import Precision, cast

_NAME = re.compile(r"class-[0-9]{5,}\.png")


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


def of_other_prompts(recipe: Recipe) -> str:
    """What to say of class pictures that were drawn by another prompt than `data.prior.class_prompt`; nothing where
    there are none."""
    prior, prompts = recipe.data.prior, Counter[str]()
    if not prior.num_class_images:
        return ""
    for name in filter(_NAME.fullmatch, _there(recipe)):
        with suppress(OSError, AttributeError), Image.open(prior.path[0].expanduser() / name) as image:
            prompts[pictures.recorded_in(image).get("prompt", prior.class_prompt)] += 1
    del prompts[prior.class_prompt]
    if not prompts:
        return ""
    most, _ = prompts.most_common(1)[0]
    return (
        f"{prior.path[0]}: another prompt than data.prior.class_prompt={prior.class_prompt!r} has drawn "
        f"{counted(prompts.total(), 'class picture')} there, such as {most!r}; what is there stays, and is trained "
        "with the prompt of now; move it away to have it drawn anew"
    )


def as_checked(recipe: Recipe) -> tuple[Recipe, list[str]]:
    """A recipe whose data can be looked at before its class pictures are drawn, and what to say of them: while none
    lies there, without them."""
    numbers, prior = missing(recipe), recipe.data.prior
    others = [sentence] if (sentence := of_other_prompts(recipe)) else []
    if not numbers:
        return recipe, others
    note = (
        f"{counted(len(numbers), 'class picture')} of {prior.class_prompt!r} are drawn into {prior.path[0]} before the "
        f"first step, {recipe.sample.steps} steps each"
    )
    if len(numbers) < prior.num_class_images:
        return recipe, [f"{note}; counts are those of the pictures that are there", *others]
    without = with_values(recipe, {"data.prior": PriorSettings()})
    return without, [f"{note}; none is there yet, so that counts and lengths are those without them"]


def draw(recipe: Recipe, runtime: Runtime, say: Callable[[str], None]) -> None:
    """Draws the class pictures that are missing, each process its share, by `recipe.sample` and the seed of the run.

    Noise is addressed by (seed, number of the picture), so that neither the number of processes nor an interruption
    changes it. Every picture is kept at once. say: of the first process. Raises StorageError, RecipeError E1455 where
    a file came in between.
    """
    numbers = missing(recipe)
    if runtime.is_first and (sentence := of_other_prompts(recipe)):
        say(f"note: {sentence}")
    runtime.barrier()  # before any process draws, all have counted
    if not numbers:
        return
    folder = recipe.data.prior.path[0].expanduser()
    with durable.storage_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    say(f"{folder}: {counted(len(numbers), 'class picture')} to be drawn, {recipe.data.prior.class_prompt!r}")
    size = recipe.sample.batch_size
    # whole blocks, of whichever is missing: what is drawn together is the same after an interruption
    blocks = sorted({number // size for number in numbers})[runtime.rank :: runtime.world_size]
    mine, done = [n for n in numbers if n // size in blocks], 0
    for number, content in _drawn(recipe, runtime.device, blocks) if mine else ():
        if number not in mine:
            continue
        durable.write_new(folder / _name(number), content, code="E1455", remedy="start again, which counts anew")
        fault_injection.reach("class.picture")
        done += 1
        if done == len(mine) or done % max(1, len(mine) // 10) == 0:
            say(f"class pictures: {done} of {len(mine)}{' of this process' if runtime.world_size > 1 else ''}")
    runtime.barrier()
    gc.collect()
    if runtime.device.type == "cuda":
        torch.cuda.empty_cache()


def _drawn(recipe: Recipe, device: torch.device, blocks: Sequence[int]) -> Iterator[tuple[int, bytes]]:
    """The numbers of some blocks with their PNG files."""
    files = open_files(recipe)
    family = family_class(recipe).load(files)
    add_to(family, recipe.model)
    refuse_unfit(recipe, family.grid)
    precision, settings = Precision.of(recipe.run), recipe.sample
    for part, module in family.parts().items():
        cast(module.requires_grad_(False).eval(), precision.of_frozen(part), but=precision.islands(module))
        module.to(device)
    for denoiser in family.denoisers:
        attention.set_up(denoiser, recipe.model.attention)
        precision.shelter(denoiser)
    objective = objective_of(recipe.objective, family.schedule, recipe.model.prediction or family.prediction).to(device)
    how = Sampling(objective.schedule, objective.parameterization, device, settings)
    for block in blocks:
        numbers = range(block * settings.batch_size, (block + 1) * settings.batch_size)
        requests = embedded(family, [_request(recipe, family, number) for number in numbers])
        with precision.autocast(device):
            latents = sample_latents(family, requests, how)
        for request, pixels in zip(requests, family.decode_media(latents), strict=True):
            facts = pictures.facts(request, settings) | {"drawn_as": "class picture"}
            yield request.index, pictures.png(as_bytes(pixels), facts)


def _request(recipe: Recipe, family: ModelFamily, number: int) -> Request:
    side = max(1, round(recipe.data.resolution / family.grid.side)) * family.grid.side
    prompt, negative = recipe.data.prior.class_prompt, recipe.sample.negative_prompt
    return Request(prompt, Size(side, side), negative, recipe.run.seed, number)


def _name(number: int) -> str:
    return f"class-{number:05d}.png"
