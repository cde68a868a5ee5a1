"""Pictures drawn while a model learns, always from the same prompts and noise, so that one sees it learn.

samples/step-00000500/00-raw.png     the picture of prompt 0 by the trained weights; its settings are in the PNG
samples/step-00000500/00-shadow.png  the same by the averaged weights
samples/grid.png                     all of them: prompts down, steps across
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from mezzotint import durable, probes
from mezzotint.diffusion.objective import Objective
from mezzotint.errors import StorageError
from mezzotint.families.base import ModelFamily
from mezzotint.recipe.base import Every
from mezzotint.recipe.sample import SampleSettings
from mezzotint.run_folder import RunFolder
from mezzotint.sampling import grids, pictures
from mezzotint.sampling.sample import Request, alike, as_bytes, sample_latents
from mezzotint.stages import StepReport
from mezzotint.training.evaluating import Weights, evaluating, skipped_when_out_of_memory, weights_in_use
from mezzotint.training.observers import Observer, Wish
from mezzotint.training.precision import Precision
from mezzotint.training.progress import Progress
from mezzotint.training.update import Update

PictureSink = Callable[[int, str, NDArray[np.uint8]], None]
"""Where pictures go besides the folder: (steps done, "PROMPT NUMBER/raw|shadow", (H, W, 3) pixels)."""

Pictures = dict[Weights, list[NDArray[np.uint8]]]

_MOST_COLUMNS = 12
_STEP = re.compile(r"step-(\d{8,})")


class Previews(Observer):
    """Draws before the first step, every so often, and at the end. The first process looks alone.

    requests: one for each prompt and guidance scale; with text embeddings where the family's text encoder is not
    loaded. weights: which ones draw; without an average there are only raw ones. decode: scaled latents (B, C, h, w) →
    pixels (B, 3, H, W) in [−1, 1]: the family's own, or that of a VAE loaded apart. sinks: get each picture as well.
    """

    at_start = True
    at_end = True

    def __init__(
        self,
        folder: RunFolder,
        requests: Sequence[Request],
        *,
        every: Every | None,
        weights: Literal["both", "raw", "shadow"],
        settings: SampleSettings,
        family: ModelFamily,
        objective: Objective,
        update: Update,
        precision: Precision,
        device: torch.device,
        decode: Callable[[Tensor], Tensor],
        warn: Callable[[str], None],
        sinks: Sequence[PictureSink] = (),
    ) -> None:
        self.every = every
        self._folder = folder.samples
        self._requests = requests
        self._weights = _wanted(weights, update)
        self._settings = settings
        self._family = family
        self._objective = objective
        self._update = update
        self._precision = precision
        self._device = device
        self._decode = decode
        self._warn = warn
        self._sinks = sinks

    def due(self, progress: Progress) -> bool:
        """As other observers; never without an interval or without prompts."""
        return bool(self._requests) and self.every is not None and super().due(progress)

    def look(self, report: StepReport | None, progress: Progress) -> Wish:
        """Draws, writes, and renews the grid. Raises StorageError when the disk refuses."""
        probes.reach("preview.begin")
        with skipped_when_out_of_memory(f"previews of step {progress.step}", self._warn):
            self._keep(progress.step, self._draw_all(progress.step))
        return Wish.NOTHING

    def _draw_all(self, step: int) -> Pictures:
        found: Pictures = {}
        for which in self._weights:
            if step == 0 and found:
                found[which] = next(iter(found.values()))  # the average begins as a copy of the weights
            else:
                found[which] = list(self._draw(which))
        return found

    def _draw(self, which: Weights) -> Iterator[NDArray[np.uint8]]:
        with evaluating(self._family.parts()), weights_in_use(self._update, which):
            for some in alike(self._requests, self._settings.batch_size):
                with self._precision.autocast(self._device):
                    latents = sample_latents(
                        self._family,
                        some,
                        schedule=self._objective.schedule,
                        prediction=self._objective.prediction,
                        steps=self._settings.steps,
                        guidance=self._settings.guidance[0],
                        solver=self._settings.solver,
                        device=self._device,
                        spacing=self._settings.spacing,
                        guidance_rescale=self._settings.guidance_rescale,
                    )
                for pixels in self._decode(latents):
                    yield as_bytes(pixels)

    def _keep(self, step: int, drawn_by: Pictures) -> None:
        folder = self._folder / f"step-{step:08d}"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            for which, drawn in drawn_by.items():
                for index, (request, pixels) in enumerate(zip(self._requests, drawn, strict=True)):
                    data = pictures.png(pixels, self._facts(request, step, which))
                    durable.write_file(folder / _name(index, which), data)
            self._renew_grid(step)
        except OSError as error:
            reason = error.strerror or str(error)
            raise StorageError(
                f"{folder}: previews cannot be written ({reason}); make room there", code="E1705"
            ) from error
        finally:
            for sink in self._sinks:
                for which, drawn in drawn_by.items():
                    for index, pixels in enumerate(drawn):
                        sink(step, f"{index}/{which}", pixels)

    def _facts(self, request: Request, step: int, which: Weights) -> dict[str, str]:
        return pictures.facts(request, self._settings) | {"training_step": f"{step}", "weights": which}

    def _renew_grid(self, step: int) -> None:
        """All steps so far; of many, an even choice with the first and the last."""
        steps = sorted(n for n in _steps_in(self._folder) if n <= step)
        shown = [steps[i] for i in grids.spread(len(steps), _MOST_COLUMNS)]
        cells: list[list[NDArray[np.uint8] | None]] = []
        rows: list[str] = []
        for index, request in enumerate(self._requests):
            for which in self._weights:
                cells.append([_read(self._folder / f"step-{n:08d}" / _name(index, which)) for n in shown])
                caption = request.prompt or "(no caption)"
                if len(self._settings.guidance) > 1:
                    caption += f" · guidance {request.guidance:g}"
                rows.append(caption if len(self._weights) == 1 else f"[{which}] {caption}")
        image = grids.sheet(cells, rows=rows, columns=[f"step {n}" for n in shown])
        grids.save(image, self._folder / "grid.png")


def _wanted(weights: Literal["both", "raw", "shadow"], update: Update) -> tuple[Weights, ...]:
    if update.shadow is None:
        return ("raw",)
    match weights:
        case "both":
            return ("raw", "shadow")
        case "raw" | "shadow":
            return (weights,)
        case _:
            raise AssertionError(weights)


def _name(index: int, which: Weights) -> str:
    return f"{index:02d}-{which}.png"


def _steps_in(folder: Path) -> list[int]:
    return [int(found[1]) for found in map(_STEP.fullmatch, (path.name for path in folder.iterdir())) if found]


def _read(path: Path) -> NDArray[np.uint8] | None:
    """A picture drawn earlier; None when it is gone, unreadable, or was never drawn."""
    try:
        with Image.open(path) as image:
            return np.asarray(image.convert("RGB"))
    except (OSError, SyntaxError, ValueError):
        return None
