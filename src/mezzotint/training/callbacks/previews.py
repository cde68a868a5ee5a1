"""Pictures drawn while a model learns, from the same prompts and noise each time, so that one sees it learn; from
those of a file as it then is, where a run has one.

samples/step-00000500/00-raw.png     the picture of prompt 0 by the trained weights; its settings are in the PNG
samples/step-00000500/00-shadow.png  the same by the averaged weights
samples/grid.png                     all of them: prompts down, steps across

A clip is an .mp4, and the .png beside it a strip of its frames.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from mezzotint import durable, fault_injection
from mezzotint.diffusion.objective import Objective
from mezzotint.errors import StorageError
from mezzotint.families.base import ModelFamily
from mezzotint.recipe.base import Every
from mezzotint.recipe.sections.sample import SampleSettings
from mezzotint.run_folder import RunFolder
from mezzotint.sampling import grids, pictures
from mezzotint.sampling.sample import Request, alike, as_bytes, sample_latents
from mezzotint.stages import StepReport
from mezzotint.training.callbacks._evaluating import (
    Weights,
    evaluating,
    skipped_when_out_of_memory,
    weights_in_use,
)
from mezzotint.training.callbacks.base import Observer, Wish
from mezzotint.training.precision.policy import Precision
from mezzotint.training.progress import Progress
from mezzotint.training.update import Update

PictureSink = Callable[[int, str, NDArray[np.uint8]], None]
"""Where pictures go besides the folder: (steps done, "PROMPT NUMBER/raw|shadow", (H, W, 3) pixels)."""

Pictures = dict[Weights, list[NDArray[np.uint8]]]

_MOST_COLUMNS = 12
_STEP = re.compile(r"step-(\d{8,})")


@dataclass(frozen=True, slots=True)
class Wanted:
    """Pictures of a step. requests: one for each prompt and guidance scale; with text embeddings where the family's
    text encoder is not loaded. settings: what requests leave open."""

    requests: Sequence[Request]
    settings: SampleSettings


class Prompts(Protocol):
    """Says what is drawn, and when. every: None for never; at_start: whether before the first step, too."""

    every: Every | None
    at_start: bool

    def renew(self, step: int) -> None:
        """Looks anew before the previews of a step, on every process together; `every` may be another one then."""

    def wanted(self, step: int) -> Wanted:
        """What the previews of a step are drawn from; asked in the first process alone, after `renew`."""


class PreviewsElsewhere(Observer):
    """Stands for the previews in the other processes: it is due when they are."""

    at_end = True
    on_all_ranks = True

    def __init__(self, prompts: Prompts) -> None:
        self.every = prompts.every
        self.at_start = prompts.at_start
        self._prompts = prompts
        self.guidance_rescale: float | None = None
        """In the place of what the prompts come with; None leaves that."""

    def due(self, progress: Progress) -> bool:
        """As other observers; never without an interval."""
        return self.every is not None and super().due(progress)

    def look(self, report: StepReport | None, progress: Progress) -> Wish:
        """Hears what the first process has read."""
        self._prompts.renew(progress.step)
        self.every = self._prompts.every
        return Wish.NOTHING


class Previews(PreviewsElsewhere):
    """Draws before the first step, every so often, and at the end. Only the first process draws.

    weights: which ones draw; without an average there are only raw ones. decode: scaled latents (B, C, …) → pixels
    (B, 3, …) in [−1, 1]: the family's own, or that of a VAE loaded apart. sinks: get each picture as well.
    only_draws: nothing is kept: for a process that shares the weights with the first, and so has to compute with it.
    """

    def __init__(
        self,
        folder: RunFolder,
        prompts: Prompts,
        *,
        weights: Literal["both", "raw", "shadow"],
        family: ModelFamily,
        objective: Objective,
        update: Update,
        precision: Precision,
        device: torch.device,
        decode: Callable[[Tensor], Tensor],
        warn: Callable[[str], None],
        sinks: Sequence[PictureSink] = (),
        only_draws: bool = False,
    ) -> None:
        super().__init__(prompts)
        self._only_draws = only_draws
        self._folder = folder.samples
        self._weights = _weights(weights, update)
        self._family = family
        self._objective = objective
        self._update = update
        self._precision = precision
        self._device = device
        self._decode = decode
        self._warn = warn
        self._sinks = sinks

    def look(self, report: StepReport | None, progress: Progress) -> Wish:
        """Draws, writes, and renews the grid. Raises StorageError when the disk refuses."""
        fault_injection.reach("preview.begin")
        super().look(report, progress)
        with skipped_when_out_of_memory(f"previews of step {progress.step}", self._warn):
            wanted = self._wanted(progress.step)
            drawn = self._draw_all(progress.step, wanted)
            if not self._only_draws:
                self._keep(progress.step, wanted, drawn)
        return Wish.NOTHING

    def _wanted(self, step: int) -> Wanted:
        wanted = self._prompts.wanted(step)
        if self.guidance_rescale is None:
            return wanted
        update = {"guidance_rescale": self.guidance_rescale}
        return replace(wanted, settings=wanted.settings.model_copy(update=update))

    def _draw_all(self, step: int, wanted: Wanted) -> Pictures:
        found: Pictures = {}
        for which in self._weights:
            if step == 0 and found:
                found[which] = next(iter(found.values()))  # the average begins as a copy of the weights
            else:
                found[which] = list(self._draw(which, wanted))
        return found

    def _draw(self, which: Weights, wanted: Wanted) -> Iterator[NDArray[np.uint8]]:
        settings = wanted.settings
        with evaluating(self._family.parts()), weights_in_use(self._update, which):
            for some in alike(wanted.requests, settings.batch_size):
                with self._precision.autocast(self._device):
                    latents = sample_latents(
                        self._family,
                        some,
                        schedule=self._objective.schedule,
                        prediction=self._objective.parameterization,
                        steps=settings.steps,
                        guidance=settings.guidance[0],
                        solver=settings.solver,
                        device=self._device,
                        spacing=settings.spacing,
                        guidance_rescale=settings.guidance_rescale,
                        settings=settings,
                    )
                for request, pixels in zip(some, self._decode(latents), strict=True):
                    yield as_bytes(pixels, request.size.frames)

    def _keep(self, step: int, wanted: Wanted, drawn_by: Pictures) -> None:
        folder = self._folder / f"step-{step:08d}"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            for which, drawn in drawn_by.items():
                for index, (request, pixels) in enumerate(zip(wanted.requests, drawn, strict=True)):
                    told = pictures.facts(request, wanted.settings) | _of_model(step, which)
                    name = _name(index, which)
                    durable.write_file(folder / name, pictures.png(pictures.strip(pixels), told))
                    if request.size.frames > 1:
                        clip = pictures.file(pixels, told, wanted.settings.clip)
                        durable.write_file((folder / name).with_suffix(".mp4"), clip)
            self._renew_grid(step, wanted)
        except OSError as error:
            reason = error.strerror or str(error)
            raise StorageError(
                f"{folder}: previews cannot be written ({reason}); make room there", code="E1705"
            ) from error
        finally:
            for sink in self._sinks:
                for which, drawn in drawn_by.items():
                    for index, pixels in enumerate(drawn):
                        sink(step, f"{index}/{which}", pictures.strip(pixels))

    def _renew_grid(self, step: int, wanted: Wanted) -> None:
        """All steps so far; of many, an even choice with the first and the last. A row has the caption and guidance of
        now; an earlier picture that was of others says so itself."""
        steps = sorted(n for n in _steps_in(self._folder) if n <= step)
        shown = [steps[i] for i in grids.spread(len(steps), _MOST_COLUMNS)]
        cells: list[list[NDArray[np.uint8] | None]] = []
        rows: list[str] = []
        notes: list[list[str]] = []
        for index, request in enumerate(wanted.requests):
            now = _caption(pictures.facts(request, wanted.settings))
            for which in self._weights:
                found = [_read(self._folder / f"step-{n:08d}" / _name(index, which)) for n in shown]
                cells.append([pixels for pixels, _ in found])
                notes.append([caption if caption != now else "" for _, caption in found])
                rows.append(now if len(self._weights) == 1 else f"[{which}] {now}")
        image = grids.sheet(cells, rows=rows, columns=[f"step {n}" for n in shown], notes=notes)
        grids.save(image, self._folder / "grid.png")


def _weights(weights: Literal["both", "raw", "shadow"], update: Update) -> tuple[Weights, ...]:
    if update.shadow is None:
        return ("raw",)
    match weights:
        case "both":
            return ("raw", "shadow")
        case "raw" | "shadow":
            return (weights,)
        case _:
            raise AssertionError(weights)


def _of_model(step: int, which: Weights) -> dict[str, str]:
    """What a picture says of its model, named as an export of that step is; nothing of the run's own name, so that
    equal runs draw equal files."""
    name = f"step-{step:08d}{'-ema' if which == 'shadow' else ''}"
    return {"model_name": name, "training_step": f"{step}", "weights": which}


def _name(index: int, which: Weights) -> str:
    return f"{index:02d}-{which}.png"


def _steps_in(folder: Path) -> list[int]:
    return [int(found[1]) for found in map(_STEP.fullmatch, (path.name for path in folder.iterdir())) if found]


def _caption(told: Mapping[str, str]) -> str:
    return f"{told.get('prompt') or '(no caption)'} · guidance {float(told.get('guidance', 'nan')):g}"


def _read(path: Path) -> tuple[NDArray[np.uint8] | None, str]:
    """A picture drawn earlier with its caption; None and "" when it is gone, unreadable, or was never drawn."""
    try:
        with Image.open(path) as image:
            pixels = np.asarray(image.convert("RGB"))
            return pixels, _caption(pictures.told_by(image))
    except (OSError, SyntaxError, ValueError, AttributeError):
        return None, ""
