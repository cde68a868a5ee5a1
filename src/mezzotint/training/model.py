"""What a trainer trains: a family made ready, with all that moves its weights; and its clean latents."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from mezzotint.adapters.trained import TrainedAdapter
from mezzotint.diffusion import noise
from mezzotint.diffusion.objective import Objective
from mezzotint.families.base import ModelFamily, posterior_sample
from mezzotint.recipe.sections.optim import OptimSettings
from mezzotint.recipe.sections.tokens import PART
from mezzotint.stages import Batch
from mezzotint.training.precision.attention import Attention
from mezzotint.training.precision.policy import LossScale, Precision
from mezzotint.training.update import Update
from mezzotint.weights.model_files import ModelFiles, Prediction


@dataclass(frozen=True, slots=True)
class TrainableModel:
    """A family on its device. files: those it was loaded from. trained: parameters by `part/parameter`. optim: the
    recipe's, with what depends on the run's length worked out."""

    family: ModelFamily
    files: ModelFiles
    trained: Mapping[str, nn.Parameter]
    objective: Objective
    prediction: Prediction
    precision: Precision
    optim: OptimSettings
    update: Update
    scale: LossScale
    attention: Attention = "auto"
    recomputed_blocks: int = 0
    compiled_blocks: int = 0
    adapter: TrainedAdapter | None = None

    @property
    def trains_text(self) -> bool:
        """Whether a text encoder or a new word of one is trained."""
        return any(group.part in (*self.family.text_parts, PART) for group in self.update.groups)

    def drawing(self, seed: int, step: int, positions: Tensor, device: torch.device) -> AbstractContextManager[None]:
        """Surrounds forward and backward pass of a micro-batch. positions: (B,) int64, places in the step's batch."""
        return self.adapter.drawing(seed, step, positions, device) if self.adapter else nullcontext()

    def tensors(self) -> dict[str, Tensor]:
        """Every tensor that a checkpoint keeps, by flat name."""
        own = self.adapter.tensors() if self.adapter else {}
        return self.update.tensors() | self.scale.tensors() | own

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Takes back a checkpoint's tensors."""
        self.update.load(tensors)
        self.scale.load(tensors)
        if self.adapter is not None:
            self.adapter.load(tensors, self.family.parts())


def latents_of(family: ModelFamily, batch: Batch, device: torch.device) -> Tensor:
    """x_0 of a batch (B, C, …), scaled: as cached, drawn from cached moments, or encoded from pixels. No gradient.

    With B·I stills, those of a sample one after the other, (B, C, f + I, h, w): the clip's frames, then its stills.
    """
    x_0 = _of_one(family, batch, device)
    if batch.stills is None or not batch.size:
        return x_0
    stills = _of_one(family, batch.stills, device)
    stills = stills if stills.ndim == x_0.ndim else stills[:, :, None]
    return torch.cat([x_0, stills.unflatten(0, (len(x_0), -1)).transpose(1, 2).flatten(2, 3)], dim=2)


def _of_one(family: ModelFamily, batch: Batch, device: torch.device) -> Tensor:
    if batch.latents is not None:
        return batch.latents.to(device, non_blocking=True)
    if batch.moments is not None:
        moments = batch.moments.to(device, non_blocking=True)
    else:
        assert batch.pixels is not None
        moments = family.encode_media(batch.pixels.to(device, non_blocking=True))
    shape = (moments.shape[1] // 2, *moments.shape[2:])
    return posterior_sample(moments, noise.normal(batch.posterior_keys.to(device, non_blocking=True), shape))
