"""Skeleton: being written. The signatures stand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal

import torch
from numpy.typing import NDArray
from torch import Tensor

from mezzotint.diffusion.objective import Objective
from mezzotint.families.base import ModelFamily
from mezzotint.recipe.base import Every
from mezzotint.recipe.sample import SampleSettings
from mezzotint.run_folder import RunFolder
from mezzotint.stages import StepReport
from mezzotint.training.observers import Observer, Wish
from mezzotint.training.precision import Precision
from mezzotint.training.progress import Progress
from mezzotint.training.update import Update

if TYPE_CHECKING:
    from mezzotint.sampling.sample import Request

PictureSink = Callable[[int, str, NDArray[Any]], None]


class Previews(Observer):
    """requests: one a prompt (colleague E's sampling.sample.Request; text embeddings in them for a cached run).
    decode: scaled latents (B, C, h, w) → pixels (B, 3, H, W) in [−1, 1]: `family.decode_media`, or a VAE loaded apart."""

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
        raise NotImplementedError

    def look(self, report: StepReport | None, progress: Progress) -> Wish:
        raise NotImplementedError
