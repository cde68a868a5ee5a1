"""Previews: images generated during training from the same prompts and noise each time. If the run has a prompt file,
it is read again before each preview.

samples/step-00000500/00-raw.png     the image of prompt 0 by the trained weights; its settings are in the PNG
samples/step-00000500/00-shadow.png  the same by the averaged weights
samples/grid.png                     all of them: prompts down, steps across

A clip is an .mp4; the .png next to it is a strip of its frames.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
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
from mezzotint.sampling import grids, image_files
from mezzotint.sampling.requests import Sampling, batch_requests
from mezzotint.sampling.sample import as_bytes, describe_non_finite, sample_latents
from mezzotint.settings.base import with_values
from mezzotint.settings.sections.run import RunSettings
from mezzotint.settings.sections.sample import SampleSettings
from mezzotint.stages import StepReport
from mezzotint.training.callbacks._evaluating import (
    WRITTEN,
    Weights,
    set_eval_mode,
    skip_when_out_of_memory,
    weights_in_use,
)
from mezzotint.training.callbacks._growing_file import write_refused
from mezzotint.training.callbacks.base import Action, Callback, PreviewRequests, PreviewSource, Setup
from mezzotint.training.model import TrainableModel
from mezzotint.training.progress import Progress

ImageSink = Callable[[int, str, NDArray[np.uint8]], None]
"""Also receives each image: (completed steps, "PROMPT NUMBER/raw|shadow", (H, W, 3) pixels)."""

Images = dict[Weights, list[NDArray[np.uint8]]]

_MAX_COLUMNS = 12
_STEP = re.compile(r"step-(\d{8,})")


@dataclass(eq=False)
class Previews(Callback):
    """Generates previews before the first step, at intervals, and at the end. Only the first process generates, and the
    processes that share the weights with it; all receive the prompts that it has read.

    weights: which weights to sample from; without an average only raw ones. decode: scaled latents (B, C, …) → pixels
    (B, 3, …) in [−1, 1], by the family's VAE or a separately loaded one. sink: also receives each image. draws: whether
    this process generates images. keeps: whether it writes them.
    """

    folder: RunFolder
    prompts: PreviewSource
    weights: Literal["both", "raw", "ema"]
    model: TrainableModel
    device: torch.device
    decode: Callable[[Tensor], Tensor]
    warn: Callable[[str], None]
    sink: ImageSink = lambda step, name, pixels: None
    draws: bool = True
    keeps: bool = True

    at_end = True
    on_all_ranks = True
    generates_on_request = True
    order = 2
    _guidance_rescale: float | None = None  # overrides that of the prompts

    def __post_init__(self) -> None:
        self.every, self.at_start = self.prompts.every, self.prompts.at_start
        requested: tuple[Weights, ...] = ("raw", "ema") if self.weights == "both" else (self.weights,)
        self._variants: tuple[Weights, ...] = requested if self.model.update.ema is not None else ("raw",)

    def on_settings_changed(self, run: RunSettings, sample: SampleSettings) -> None:
        self._guidance_rescale = sample.guidance_rescale

    def due(self, progress: Progress) -> bool:
        """As for other callbacks; never without an interval."""
        return self.every is not None and super().due(progress)

    def on_step(self, report: StepReport | None, progress: Progress) -> Action:
        """Reloads the prompts, generates, writes, and rewrites the grid. Raises StorageError if a write fails."""
        step = progress.step
        if self.draws:
            fault_injection.reach("preview.begin")
        self.prompts.renew(step)
        self.every = self.prompts.every
        if self.draws:
            with skip_when_out_of_memory(f"previews of step {step}", self.warn):
                requests = self._requests(step)
                images = self._generate_all(step, requests)
                if self.keeps:
                    self._write(step, requests, images)
        return Action.NOTHING

    def _requests(self, step: int) -> PreviewRequests:
        requests = self.prompts.of_step(step)
        if self._guidance_rescale is None:
            return requests
        settings = with_values(requests.settings, {"guidance_rescale": self._guidance_rescale})
        return replace(requests, settings=settings)

    def _generate_all(self, step: int, requests: PreviewRequests) -> Images:
        images: Images = {}
        for which in self._variants:
            if step == 0 and images:
                images[which] = next(iter(images.values()))  # the average starts as a copy of the weights
            else:
                images[which] = list(self._generate(which, requests))
        return images

    def _generate(self, which: Weights, requests: PreviewRequests) -> Iterator[NDArray[np.uint8]]:
        settings, objective = requests.settings, self.model.objective
        sampling = Sampling(objective.schedule, objective.parameterization, self.device, settings)
        under = nullcontext() if settings.under else self.model.under.off()
        with set_eval_mode(self.model.family.parts()), weights_in_use(self.model.update, which), under:
            for group in batch_requests(requests.requests, settings.batch_size):
                with self.model.precision.autocast(self.device):
                    latents = sample_latents(self.model.family, group, sampling)
                for request, pixels in zip(group, self.decode(latents), strict=True):
                    if problem := describe_non_finite(pixels):
                        self.warn(f"previews: {problem}")
                    yield as_bytes(pixels, request.size.frames)

    def _write(self, step: int, requests: PreviewRequests, images: Images) -> None:
        folder = self.folder.samples / f"step-{step:08d}"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            for which, of_weights in images.items():
                for index, (request, pixels) in enumerate(zip(requests.requests, of_weights, strict=True)):
                    facts = image_files.generation_facts(request, requests.settings) | _model_facts(step, which)
                    name = _name(index, which)
                    durable.write_file(folder / name, image_files.png(image_files.film_strip(pixels), facts))
                    if request.size.frames > 1:
                        clip = image_files.file(pixels, facts, requests.settings.clip)
                        durable.write_file((folder / name).with_suffix(".mp4"), clip)
            self._write_grid(step, requests)
        except OSError as error:
            raise write_refused(folder, "previews", error) from error
        finally:
            for which, of_weights in images.items():
                for index, pixels in enumerate(of_weights):
                    self.sink(step, f"{index}/{WRITTEN[which]}", image_files.film_strip(pixels))

    def _write_grid(self, step: int, requests: PreviewRequests) -> None:
        """All steps so far; if there are many, an even selection with the first and the last. A row is labelled with
        its current caption and guidance; an earlier image with other ones has its own label."""
        names = filter(None, (_STEP.fullmatch(path.name) for path in self.folder.samples.iterdir()))
        steps = sorted(n for n in (int(name[1]) for name in names) if n <= step)
        columns = [steps[i] for i in grids.spread_indices(len(steps), _MAX_COLUMNS)]
        cells: list[list[NDArray[np.uint8] | None]] = []
        rows: list[str] = []
        notes: list[list[str]] = []
        for index, request in enumerate(requests.requests):
            caption_now = _caption(image_files.generation_facts(request, requests.settings))
            for which in self._variants:
                images = [_read(self.folder.samples / f"step-{n:08d}" / _name(index, which)) for n in columns]
                cells.append([pixels for pixels, _ in images])
                notes.append([caption if caption != caption_now else "" for _, caption in images])
                rows.append(caption_now if len(self._variants) == 1 else f"[{WRITTEN[which]}] {caption_now}")
        image = grids.sheet(cells, rows=rows, columns=[f"step {n}" for n in columns], notes=notes)
        grids.save(image, self.folder.samples / "grid.png")


def _model_facts(step: int, which: Weights) -> dict[str, str]:
    """Model metadata of an image, named like an export of that step. Without the run's name: equal runs write equal
    files."""
    name = f"step-{step:08d}{'-ema' if which == 'ema' else ''}"
    return {"model_name": name, "training_step": f"{step}", "weights": WRITTEN[which]}


def _name(index: int, which: Weights) -> str:
    return f"{index:02d}-{WRITTEN[which]}.png"


def _caption(facts: Mapping[str, str]) -> str:
    return f"{facts.get('prompt') or '(no caption)'} · guidance {float(facts.get('guidance', 'nan')):g}"


def _read(path: Path) -> tuple[NDArray[np.uint8] | None, str]:
    """An earlier preview with its caption; None and "" if the file is missing or unreadable."""
    try:
        with outside.open_plain(path, within=path.parent.parent) as file, Image.open(file) as image:
            pixels = np.asarray(image.convert("RGB"))
            return pixels, _caption(image_files.read_record(image))
    except (OSError, SyntaxError, ValueError, AttributeError):
        return None, ""


def create_callbacks(setup: Setup) -> Iterator[Callback]:
    """Enabled by `run.preview.every`."""
    if setup.run.preview.every is not None:
        yield Previews(
            setup.folder,
            setup.previews(),
            weights=setup.run.preview.weights,
            model=setup.model,
            device=setup.runtime.device,
            decode=setup.decode,
            warn=setup.warn,
            sink=setup.image,
            draws=setup.computes,
            keeps=setup.runtime.is_first,
        )
