"""What a trainer trains: a family made ready, with all that moves its weights."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from mezzotint.adapters.trained import TrainedAdapter
from mezzotint.diffusion.masking import LossMask
from mezzotint.diffusion.objective import Objective
from mezzotint.families.base import ModelFamily
from mezzotint.recipe.sections.optim import OptimSettings
from mezzotint.recipe.sections.tokens import PART
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
    loss_mask: LossMask = field(default_factory=LossMask)
    records_graphs: bool = False
    """Whether compiled blocks are CUDA graphs, whose results are written over in the next step."""

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
