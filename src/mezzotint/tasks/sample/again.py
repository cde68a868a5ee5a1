"""Lines of `sample` one after another in one process: the models that were drawn from last stay open, and whoever waits
sees the picture come about. Each line draws what it draws by itself.
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
from mezzotint.tasks.sample import _plan
from mezzotint.tasks.sample._args import Weights, parse
from mezzotint.tasks.sample._drawing import draw
from mezzotint.tasks.sample._model import ModelSource, SampledModel, open_model

Seen = Callable[[int, int, NDArray[np.uint8] | None], None]
"""Hears (steps done, steps in all, the picture so far (H, W, 3), or None where it is not looked at)."""

_KEPT = 2
_SHARE = 0.2
"""Looking at pictures on the way takes at most this share of the time."""


class Drawer:
    """Draws lines; keeps the last two models."""

    def __init__(self) -> None:
        self._models: OrderedDict[tuple[object, ...], SampledModel] = OrderedDict()

    def draw(self, arguments: Sequence[str], say: Callable[[str], None], seen: Seen) -> None:
        """Draws what stands behind `mezzotint sample`; sentences go to `say`. Raises as the verb does."""
        args = parse(arguments)

        def opened(
            source: ModelSource, weights: Weights | None, adapters: Sequence[tuple[Path, float]]
        ) -> SampledModel:
            model = self._opened(source, weights, adapters)
            model.on_step = _Watch(model, seen)
            return model

        for line in draw(args, _plan.look(args), say, opened):
            say(line)

    def warm(self, model: str) -> None:
        """Opens a model and draws a step from it for nobody, so that the first line that somebody waits for loads no
        module and no weight."""
        with tempfile.TemporaryDirectory() as folder, suppress(MezzotintError, OSError):
            line = [model, "--prompt=a", "--steps=1", f"--out={Path(folder) / 'warm'}"]
            self.draw(line, lambda text: None, lambda done, total, pixels: None)

    def _opened(
        self, source: ModelSource, weights: Weights | None, adapters: Sequence[tuple[Path, float]]
    ) -> SampledModel:
        files = [source.checkpoint or source.recipe.model.path, *(path for path, _ in adapters)]
        stamps = tuple(path.stat().st_mtime_ns if path.exists() else 0 for path in files)
        recipe = source.recipe
        sections = tuple(one.model_dump_json() for one in (recipe.model, recipe.objective, recipe.run))
        key = (source.checkpoint, weights, tuple(adapters), stamps, sections)
        model = self._models.get(key)
        if model is None:
            while len(self._models) >= _KEPT:
                self._models.popitem(last=False)
            model = self._models[key] = open_model(source, weights, adapters)
        self._models.move_to_end(key)
        return model


class _Watch:
    def __init__(self, model: SampledModel, seen: Seen) -> None:
        self._model, self._seen = model, seen
        self._began, self._spent = time.monotonic(), 0.0

    @torch.no_grad()
    def __call__(self, done: int, total: int, x: Tensor) -> None:
        begun = time.monotonic()
        if done == total or self._spent > _SHARE * (begun - self._began) or x.ndim != 4:
            self._seen(done, total, None)
            return
        # under much noise latents are large in some descents; the eye wants them as wide as clean ones
        shades = self._model.family.decode_media((x[:1] / x[:1].std().clamp(min=1.0)).float())
        self._seen(done, total, as_bytes(shades[0]))
        self._spent += time.monotonic() - begun
