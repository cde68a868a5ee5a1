"""The command `sample`: generates images from a model, a run or a recipe, each a PNG with its generation settings, and
a contact sheet."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mezzotint.sampling.prompt_file import Line
from mezzotint.tasks.sample import plan
from mezzotint.tasks.sample.args import SampleArgs, parse
from mezzotint.tasks.sample.args import Weights as Weights


def run(arguments: Sequence[str]) -> int:
    """`mezzotint sample MODEL|RUN|RECIPE [--prompt TEXT …] [options] [key=value …]`. Returns 0.

    Raises RecipeError E1012 and E1070 to E1075, CheckpointError, WeightsError, StorageError, OutOfMemory E1751.
    """
    args = parse(arguments)
    source = plan.choose_model(args)
    # imported late: torch and the networks take seconds, and a mistyped line fails before
    from mezzotint.tasks.sample._generating import write_images

    for line in write_images(args, source, say=print):
        print(line)
    return 0


def generate_pixels(
    source: str | Path,
    prompts: str | Sequence[str],
    override_arguments: Sequence[str],
    *,
    seed: int | Sequence[int] | None,
    negative: str | None,
    size: tuple[int, int] | None,
    adapters: Sequence[tuple[str | Path, float]],
    weights: Weights | None,
    say: Callable[[str], None],
) -> Iterator[tuple[NDArray[np.uint8], dict[str, str]]]:
    """What `run` writes, as arrays with their settings: uint8 (H, W, 3) of an image, (F, H, W, 3) of a clip, prompt by
    prompt and for each prompt seed by seed. See `mezzotint.sample` for the arguments. Raises as `run`."""
    args = SampleArgs(
        source=os.fspath(source),
        overrides=tuple(override_arguments),
        lines=tuple(Line(prompt) for prompt in ([prompts] if isinstance(prompts, str) else prompts)),
        negative=negative,
        sizes=() if size is None else (size,),
        seeds=() if seed is None else (seed,) if isinstance(seed, int) else tuple(seed),
        adapters=tuple((Path(path), strength) for path, strength in adapters),
        weights=weights,
    )
    sample_source = plan.choose_model(args)
    from mezzotint.tasks.sample._generating import generate, open_session  # torch: see `run`

    session = open_session(args, sample_source, say)
    results = {(job.row, job.column): (pixels, facts) for job, pixels, facts in generate(session, lambda _: None)}
    for position in sorted(results):
        yield results[position]
