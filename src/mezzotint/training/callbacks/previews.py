"""Pictures drawn while a model learns, from the same prompts and noise each time, so that one sees it learn; from
those of a file as it then is, where a run has one.

samples/step-00000500/00-raw.png     the picture of prompt 0 by the trained weights; its settings are in the PNG
samples/step-00000500/00-shadow.png  the same by the averaged weights
samples/grid.png                     all of them: prompts down, steps across

A clip is an .mp4, and the .png beside it a strip of its frames.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from mezzotint import durable, fault_injection, outside
from mezzotint.run_folder import RunFolder
from mezzotint.sampling import grids, pictures
from mezzotint.sampling.requests import Sampling, batch_requests
from mezzotint.sampling.sample import as_bytes, sample_latents
from mezzotint.settings.base import with_values
from mezzotint.settings.sections.run import RunSettings
from mezzotint.settings.sections.sample import SampleSettings
from mezzotint.stages import StepReport
from mezzotint.training.callbacks._evaluating import (
    WRITTEN,
    Weights,
    evaluating,
    skipped_when_out_of_memory,
    weights_in_use,
)
from mezzotint.training.callbacks._growing_file import refused
from mezzotint.training.callbacks.base import Action, Callback, PreviewRequests, PreviewSource, Setup
from mezzotint.training.model import TrainableModel
from mezzotint.training.progress import Progress

PictureSink = Callable[[int, str, NDArray[np.uint8]], None]
"""Where pictures go besides the folder: (steps done, "PROMPT NUMBER/raw|shadow", (H, W, 3) pixels)."""

Pictures = dict[Weights, list[NDArray[np.uint8]]]

_MOST_COLUMNS = 12
_STEP = re.compile(r"step-(\d{8,})")


@dataclass(eq=False)
class Previews(Callback):
    """Draws before the first step, every so often, and at the end. Only the first process draws, and those that share
    the weights with it; all hear what it has read.

    weights: which ones draw; without an average there are only raw ones. decode: scaled latents (B, C, …) → pixels
    (B, 3, …) in [−1, 1]: the family's own, or that of a VAE loaded apart. sink: gets each picture as well. draws:
    whether this process computes pictures; keeps: whether it writes them.
    """

    folder: RunFolder
    prompts: PreviewSource
    weights: Literal["both", "raw", "ema"]
    model: TrainableModel
    device: torch.device
    decode: Callable[[Tensor], Tensor]
    warn: Callable[[str], None]
    sink: PictureSink = lambda step, name, pixels: None
    draws: bool = True
    keeps: bool = True

    at_end = True
    on_all_ranks = True
    draws_when_asked = True
    place = 2
    _guidance_rescale: float | None = None  # in the place of what the prompts come with

    def __post_init__(self) -> None:
        self.every, self.at_start = self.prompts.every, self.prompts.at_start
        both: tuple[Weights, ...] = ("raw", "ema") if self.weights == "both" else (self.weights,)
        self._used: tuple[Weights, ...] = both if self.model.update.ema is not None else ("raw",)

    def replaced(self, run: RunSettings, sample: SampleSettings) -> None:
        self._guidance_rescale = sample.guidance_rescale

    def due(self, progress: Progress) -> bool:
        """As other callbacks; never without an interval."""
        return self.every is not None and super().due(progress)

    def on_step(self, report: StepReport | None, progress: Progress) -> Action:
        """Hears what is to be drawn, draws, writes, and renews the grid. Raises StorageError when the disk refuses."""
        step = progress.step
        if self.draws:
            fault_injection.reach("preview.begin")
        self.prompts.renew(step)
        self.every = self.prompts.every
        if self.draws:
            with skipped_when_out_of_memory(f"previews of step {step}", self.warn):
                requests = self._requests(step)
                drawn = self._draw_all(step, requests)
                if self.keeps:
                    self._keep(step, requests, drawn)
        return Action.NOTHING

    def _requests(self, step: int) -> PreviewRequests:
        requests = self.prompts.of_step(step)
        if self._guidance_rescale is None:
            return requests
        settings = with_values(requests.settings, {"guidance_rescale": self._guidance_rescale})
        return replace(requests, settings=settings)

    def _draw_all(self, step: int, requests: PreviewRequests) -> Pictures:
        drawn: Pictures = {}
        for which in self._used:
            if step == 0 and drawn:
                drawn[which] = next(iter(drawn.values()))  # the average begins as a copy of the weights
            else:
                drawn[which] = list(self._draw(which, requests))
        return drawn

    def _draw(self, which: Weights, requests: PreviewRequests) -> Iterator[NDArray[np.uint8]]:
        settings, objective = requests.settings, self.model.objective
        how = Sampling(objective.schedule, objective.parameterization, self.device, settings)
        with evaluating(self.model.family.parts()), weights_in_use(self.model.update, which):
            for group in batch_requests(requests.requests, settings.batch_size):
                with self.model.precision.autocast(self.device):
                    latents = sample_latents(self.model.family, group, how)
                for request, pixels in zip(group, self.decode(latents), strict=True):
                    yield as_bytes(pixels, request.size.frames)

    def _keep(self, step: int, requests: PreviewRequests, drawn_by: Pictures) -> None:
        folder = self.folder.samples / f"step-{step:08d}"
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
            raise refused(folder, "previews", error) from error
        finally:
            for which, drawn in drawn_by.items():
                for index, pixels in enumerate(drawn):
                    self.sink(step, f"{index}/{WRITTEN[which]}", pictures.strip(pixels))

    def _renew_grid(self, step: int, requests: PreviewRequests) -> None:
        """All steps so far; of many, an even choice with the first and the last. A row has the caption and guidance of
        now; an earlier picture that was of others says so itself."""
        names = filter(None, (_STEP.fullmatch(path.name) for path in self.folder.samples.iterdir()))
        steps = sorted(n for n in (int(name[1]) for name in names) if n <= step)
        shown = [steps[i] for i in grids.spread(len(steps), _MOST_COLUMNS)]
        cells: list[list[NDArray[np.uint8] | None]] = []
        rows: list[str] = []
        notes: list[list[str]] = []
        for index, request in enumerate(requests.requests):
            now = _caption(pictures.facts(request, requests.settings))
            for which in self._used:
                images = [_read(self.folder.samples / f"step-{n:08d}" / _name(index, which)) for n in shown]
                cells.append([pixels for pixels, _ in images])
                notes.append([caption if caption != now else "" for _, caption in images])
                rows.append(now if len(self._used) == 1 else f"[{WRITTEN[which]}] {now}")
        image = grids.sheet(cells, rows=rows, columns=[f"step {n}" for n in shown], notes=notes)
        grids.save(image, self.folder.samples / "grid.png")


def _of_model(step: int, which: Weights) -> dict[str, str]:
    """What a picture says of its model, named as an export of that step is; nothing of the run's own name, so that
    equal runs draw equal files."""
    name = f"step-{step:08d}{'-ema' if which == 'ema' else ''}"
    return {"model_name": name, "training_step": f"{step}", "weights": WRITTEN[which]}


def _name(index: int, which: Weights) -> str:
    return f"{index:02d}-{WRITTEN[which]}.png"


def _caption(facts: Mapping[str, str]) -> str:
    return f"{facts.get('prompt') or '(no caption)'} · guidance {float(facts.get('guidance', 'nan')):g}"


def _read(path: Path) -> tuple[NDArray[np.uint8] | None, str]:
    """A picture drawn earlier with its caption; None and "" when it is gone, unreadable, or was never drawn."""
    try:
        with outside.open_plain(path, within=path.parent.parent) as file, Image.open(file) as image:
            pixels = np.asarray(image.convert("RGB"))
            return pixels, _caption(pictures.recorded_in(image))
    except (OSError, SyntaxError, ValueError, AttributeError):
        return None, ""


def opened(setup: Setup) -> Iterator[Callback]:
    """With `run.preview.every`."""
    if setup.run.preview.every is not None:
        yield Previews(
            setup.folder,
            setup.previews(),
            weights=setup.run.preview.weights,
            model=setup.model,
            device=setup.runtime.device,
            decode=setup.decode,
            warn=setup.warn,
            sink=setup.picture,
            draws=setup.computes,
            keeps=setup.runtime.is_first,
        )
