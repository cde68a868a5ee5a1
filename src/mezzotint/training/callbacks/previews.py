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
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from mezzotint import durable, fault_injection
from mezzotint.errors import StorageError
from mezzotint.recipe.base import with_values
from mezzotint.recipe.sections.run import RunSettings
from mezzotint.recipe.sections.sample import SampleSettings
from mezzotint.run_folder import RunFolder
from mezzotint.sampling import grids, pictures
from mezzotint.sampling.sample import Sampling, alike, as_bytes, sample_latents
from mezzotint.stages import StepReport
from mezzotint.training.callbacks._evaluating import (
    WRITTEN,
    Weights,
    evaluating,
    skipped_when_out_of_memory,
    weights_in_use,
)
from mezzotint.training.callbacks.base import Action, Callback, PreviewRequests, PreviewSource, Setup
from mezzotint.training.model import TrainableModel
from mezzotint.training.progress import Progress
from mezzotint.training.update import Update

PictureSink = Callable[[int, str, NDArray[np.uint8]], None]
"""Where pictures go besides the folder: (steps done, "PROMPT NUMBER/raw|shadow", (H, W, 3) pixels)."""

Pictures = dict[Weights, list[NDArray[np.uint8]]]

_MOST_COLUMNS = 12
_STEP = re.compile(r"step-(\d{8,})")


class PreviewsElsewhere(Callback):
    """Stands for the previews in the other processes: it is due when they are."""

    at_end = True
    on_all_ranks = True
    place = 2

    def __init__(self, prompts: PreviewSource) -> None:
        self.every = prompts.every
        self.at_start = prompts.at_start
        self._prompts = prompts
        self.guidance_rescale: float | None = None
        """In the place of what the prompts come with; None leaves that."""

    def replaced(self, run: RunSettings, sample: SampleSettings) -> None:
        self.guidance_rescale = sample.guidance_rescale

    def due(self, progress: Progress) -> bool:
        """As other callbacks; never without an interval."""
        return self.every is not None and super().due(progress)

    def on_step(self, report: StepReport | None, progress: Progress) -> Action:
        """Hears what the first process has read."""
        self._prompts.renew(progress.step)
        self.every = self._prompts.every
        return Action.NOTHING


class Previews(PreviewsElsewhere):
    """Draws before the first step, every so often, and at the end. Only the first process draws.

    weights: which ones draw; without an average there are only raw ones. decode: scaled latents (B, C, …) → pixels
    (B, 3, …) in [−1, 1]: the family's own, or that of a VAE loaded apart. sinks: get each picture as well.
    only_draws: nothing is kept: for a process that shares the weights with the first, and so has to compute with it.
    """

    def __init__(
        self,
        folder: RunFolder,
        prompts: PreviewSource,
        *,
        weights: Literal["both", "raw", "ema"],
        model: TrainableModel,
        device: torch.device,
        decode: Callable[[Tensor], Tensor],
        warn: Callable[[str], None],
        sinks: Sequence[PictureSink] = (),
        only_draws: bool = False,
    ) -> None:
        super().__init__(prompts)
        self._only_draws = only_draws
        self._folder = folder.samples
        self._weights = _weights(weights, model.update)
        self._model = model
        self._device = device
        self._decode = decode
        self._warn = warn
        self._sinks = sinks

    def on_step(self, report: StepReport | None, progress: Progress) -> Action:
        """Draws, writes, and renews the grid. Raises StorageError when the disk refuses."""
        fault_injection.reach("preview.begin")
        super().on_step(report, progress)
        with skipped_when_out_of_memory(f"previews of step {progress.step}", self._warn):
            requests = self._wanted(progress.step)
            drawn = self._draw_all(progress.step, requests)
            if not self._only_draws:
                self._keep(progress.step, requests, drawn)
        return Action.NOTHING

    def _wanted(self, step: int) -> PreviewRequests:
        requests = self._prompts.wanted(step)
        if self.guidance_rescale is None:
            return requests
        update = {"guidance_rescale": self.guidance_rescale}
        return replace(requests, settings=with_values(requests.settings, update))

    def _draw_all(self, step: int, requests: PreviewRequests) -> Pictures:
        drawn: Pictures = {}
        for which in self._weights:
            if step == 0 and drawn:
                drawn[which] = next(iter(drawn.values()))  # the average begins as a copy of the weights
            else:
                drawn[which] = list(self._draw(which, requests))
        return drawn

    def _draw(self, which: Weights, requests: PreviewRequests) -> Iterator[NDArray[np.uint8]]:
        settings, objective = requests.settings, self._model.objective
        how = Sampling(objective.schedule, objective.parameterization, self._device, settings)
        with evaluating(self._model.family.parts()), weights_in_use(self._model.update, which):
            for some in alike(requests.requests, settings.batch_size):
                with self._model.precision.autocast(self._device):
                    latents = sample_latents(self._model.family, some, how)
                for request, pixels in zip(some, self._decode(latents), strict=True):
                    yield as_bytes(pixels, request.size.frames)

    def _keep(self, step: int, requests: PreviewRequests, drawn_by: Pictures) -> None:
        folder = self._folder / f"step-{step:08d}"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            for which, drawn in drawn_by.items():
                for index, (request, pixels) in enumerate(zip(requests.requests, drawn, strict=True)):
                    facts = pictures.facts(request, requests.settings) | _of_model(step, which)
                    name = _name(index, which)
                    durable.write_file(folder / name, pictures.png(pictures.strip(pixels), facts))
                    if request.size.frames > 1:
                        clip = pictures.file(pixels, facts, requests.settings.clip)
                        durable.write_file((folder / name).with_suffix(".mp4"), clip)
            self._renew_grid(step, requests)
        except OSError as error:
            reason = error.strerror or str(error)
            raise StorageError(
                f"{folder}: previews cannot be written ({reason}); make room there", code="E1705"
            ) from error
        finally:
            for sink in self._sinks:
                for which, drawn in drawn_by.items():
                    for index, pixels in enumerate(drawn):
                        sink(step, f"{index}/{WRITTEN[which]}", pictures.strip(pixels))

    def _renew_grid(self, step: int, requests: PreviewRequests) -> None:
        """All steps so far; of many, an even choice with the first and the last. A row has the caption and guidance of
        now; an earlier picture that was of others says so itself."""
        steps = sorted(n for n in _steps_in(self._folder) if n <= step)
        shown = [steps[i] for i in grids.spread(len(steps), _MOST_COLUMNS)]
        cells: list[list[NDArray[np.uint8] | None]] = []
        rows: list[str] = []
        notes: list[list[str]] = []
        for index, request in enumerate(requests.requests):
            now = _caption(pictures.facts(request, requests.settings))
            for which in self._weights:
                images = [_read(self._folder / f"step-{n:08d}" / _name(index, which)) for n in shown]
                cells.append([pixels for pixels, _ in images])
                notes.append([caption if caption != now else "" for _, caption in images])
                rows.append(now if len(self._weights) == 1 else f"[{WRITTEN[which]}] {now}")
        image = grids.sheet(cells, rows=rows, columns=[f"step {n}" for n in shown], notes=notes)
        grids.save(image, self._folder / "grid.png")


def _weights(weights: Literal["both", "raw", "ema"], update: Update) -> tuple[Weights, ...]:
    if update.ema is None:
        return ("raw",)
    match weights:
        case "both":
            return ("raw", "ema")
        case "raw" | "ema":
            return (weights,)
        case _:
            raise AssertionError(weights)


def _of_model(step: int, which: Weights) -> dict[str, str]:
    """What a picture says of its model, named as an export of that step is; nothing of the run's own name, so that
    equal runs draw equal files."""
    name = f"step-{step:08d}{'-ema' if which == 'ema' else ''}"
    return {"model_name": name, "training_step": f"{step}", "weights": WRITTEN[which]}


def _name(index: int, which: Weights) -> str:
    return f"{index:02d}-{WRITTEN[which]}.png"


def _steps_in(folder: Path) -> list[int]:
    return [int(steps[1]) for steps in map(_STEP.fullmatch, (path.name for path in folder.iterdir())) if steps]


def _caption(facts: Mapping[str, str]) -> str:
    return f"{facts.get('prompt') or '(no caption)'} · guidance {float(facts.get('guidance', 'nan')):g}"


def _read(path: Path) -> tuple[NDArray[np.uint8] | None, str]:
    """A picture drawn earlier with its caption; None and "" when it is gone, unreadable, or was never drawn."""
    try:
        with Image.open(path) as image:
            pixels = np.asarray(image.convert("RGB"))
            return pixels, _caption(pictures.told_by(image))
    except (OSError, SyntaxError, ValueError, AttributeError):
        return None, ""


def opened(setup: Setup) -> Iterator[Callback]:
    """With `run.preview.every`."""
    if setup.run.preview.every is None:
        return
    if not setup.computes:
        yield PreviewsElsewhere(setup.previews())
        return
    yield Previews(
        setup.folder,
        setup.previews(),
        weights=setup.run.preview.weights,
        model=setup.model,
        device=setup.runtime.device,
        decode=setup.decode,
        warn=setup.warn,
        sinks=[setup.picture],
        only_draws=not setup.runtime.is_first,
    )
