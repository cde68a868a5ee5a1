"""Several command lines of `sample` in one process: the last models stay open, and images in progress are shown. Each
line generates the same as by itself.
"""

from __future__ import annotations

import tempfile
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mezzotint.errors import MezzotintError
from mezzotint.sampling.sample import as_bytes
from mezzotint.tasks.sample import plan
from mezzotint.tasks.sample._generating import write_images
from mezzotint.tasks.sample._model import ModelSource, SampledModel, open_model
from mezzotint.tasks.sample.args import Weights, parse

OnStep = Callable[[int, int, NDArray[np.uint8] | None], None]
"""Called with (steps done, total steps, the image so far (H, W, 3), or None without a preview)."""

_MAX_MODELS = 2
_SHARE = 0.2
"""Previews of images in progress take at most this share of the time."""


class SampleRunner:
    """Runs command lines of `sample`; keeps the last two models."""

    def __init__(self) -> None:
        self._models: OrderedDict[tuple[object, ...], SampledModel] = OrderedDict()

    def run(self, arguments: Sequence[str], say: Callable[[str], None], on_step: OnStep) -> None:
        """Runs a command line, the arguments of `mezzotint sample`; prints with `say`. Raises as the command does."""
        args = parse(arguments)

        def opener(
            source: ModelSource, weights: Weights | None, adapters: Sequence[tuple[Path, float]]
        ) -> SampledModel:
            model = self._open_or_reuse(source, weights, adapters)
            model.on_step = _StepObserver(model, on_step)
            return model

        for line in write_images(args, plan.choose_model(args), say, opener):
            say(line)

    def warm(self, model: str) -> None:
        """Opens a model and runs one step, so the first command line of the user loads no modules and no weights."""
        with tempfile.TemporaryDirectory() as folder, suppress(MezzotintError, OSError):
            line = [model, "--prompt=a", "--steps=1", f"--out={Path(folder) / 'warm'}"]
            self.run(line, lambda text: None, lambda done, total, pixels: None)

    def _open_or_reuse(
        self, source: ModelSource, weights: Weights | None, adapters: Sequence[tuple[Path, float]]
    ) -> SampledModel:
        files = [source.checkpoint or source.recipe.model.path, *(path for path, _ in adapters)]
        stamps = tuple(path.stat().st_mtime_ns if path.exists() else 0 for path in files)
        recipe = source.recipe
        sections = tuple(section.model_dump_json() for section in (recipe.model, recipe.objective, recipe.run))
        key = (source.checkpoint, weights, tuple(adapters), stamps, sections)
        model = self._models.get(key)
        if model is None:
            while len(self._models) >= _MAX_MODELS:
                self._models.popitem(last=False)
            model = self._models[key] = open_model(source, weights, adapters)
        self._models.move_to_end(key)
        return model


class _StepObserver:
    def __init__(self, model: SampledModel, on_step: OnStep) -> None:
        self._model, self._on_step = model, on_step
        self._started, self._spent = time.monotonic(), 0.0

    @torch.no_grad()
    def __call__(self, done: int, total: int, x: Tensor) -> None:
        started = time.monotonic()
        if done == total or self._spent > _SHARE * (started - self._started) or x.ndim != 4:
            self._on_step(done, total, None)
            return
        # noisy latents of some solvers are large: scale them to the range of clean ones for the preview
        pixels = self._model.family.decode_media((x[:1] / x[:1].std().clamp(min=1.0)).float())
        self._on_step(done, total, as_bytes(pixels[0]))
        self._spent += time.monotonic() - started
