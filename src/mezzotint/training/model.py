"""The trainable model: a prepared family with objective, precision and optimizer update."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor, nn

from mezzotint.adapters.trained import TrainedAdapter
from mezzotint.adapters.under import UnderAdapters
from mezzotint.diffusion.masking import LossMask
from mezzotint.diffusion.objective import Objective, StepDraws
from mezzotint.families.base import ModelFamily, batch_latents, batch_text, condition_latents
from mezzotint.settings.sections.optim import OptimSettings
from mezzotint.settings.sections.tokens import PART
from mezzotint.stages import Batch, Loss, TextEmbedding
from mezzotint.training.precision.attention import Attention, use_attention
from mezzotint.training.precision.policy import LossScale, Precision
from mezzotint.training.preservation import BaseModel, Preservation
from mezzotint.training.update import Update
from mezzotint.weights.model_files import ModelFiles, Prediction


@dataclass(frozen=True, slots=True)
class TrainableModel:
    """A family on its device. files: those it was loaded from. trained: parameters by `part/parameter`. optim: settings
    of the recipe, with values that depend on the run's length resolved."""

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
    under: UnderAdapters = field(default_factory=UnderAdapters)
    base: BaseModel | None = None
    """The model without what is trained; None where there is none, as in full training without a frozen copy."""
    preservation: Preservation | None = None
    loss_mask: LossMask = field(default_factory=LossMask)
    records_graphs: bool = False
    """Whether compiled blocks are CUDA graphs, whose results are overwritten in the next step."""

    @property
    def trains_text(self) -> bool:
        """Whether a text encoder or a learned token is trained."""
        return any(group.part in (*self.family.text_parts, PART) for group in self.update.groups)

    def address_dropout(
        self, seed: int, step: int, positions: Tensor, device: torch.device
    ) -> AbstractContextManager[None]:
        """Context for forward and backward pass of a micro-batch. positions: (B,) int64, in the step's batch."""
        return self.adapter.address_dropout(seed, step, positions, device) if self.adapter else nullcontext()

    def loss(self, batch: Batch, seed: int, step: int, device: torch.device) -> tuple[Loss, Tensor]:
        """The loss of a micro-batch with the random draws of a step, and the timesteps of its noise, (B,)."""
        x_0 = batch_latents(self.family, batch, device, self.objective.settings.posterior)
        drawn = StepDraws.at(seed, step, batch.positions.numpy(), device)
        images = condition_latents(self.family, batch, device)
        text = self._frozen_text(batch)
        of_stills = self._frozen_text(batch.joined_images) if batch.joined_images is not None else None
        with use_attention(self.attention, device), self.precision.autocast(device):
            # a trained text encoder runs under autocast, too
            text = (text or batch_text(self.family, batch)).zero_samples(batch.dropped)
            text = replace(text, states=self.objective.perturb_text(text.states, drawn))
            condition = replace(self.family.condition(text, batch), joined_images=of_stills, images=images)
            noised = self.family.training_input(self.objective.noise(x_0, drawn), drawn)
            predicted = self.family.predict(noised, condition)
            if self.preservation is not None:
                distance = self.preservation.distance(self.objective, batch, noised, condition, predicted)
        weight = batch.weight.to(device, non_blocking=True)
        counting = self.loss_mask.weights(batch.mask, x_0)
        counting = condition.masks.get("latents") if counting is None else counting
        loss = self.objective.loss(predicted, noised, weight, counting)
        if self.preservation is not None:
            loss = self.preservation.add_to(loss, batch, distance)
        return loss, self.objective.timestep(noised)

    def _frozen_text(self, batch: Batch) -> TextEmbedding | None:
        """The captions' embeddings from the cache or a frozen encoder, in its type; None if the encoder is trained."""
        if batch.text is not None:
            return batch.text
        if self.trains_text:
            return None
        with torch.no_grad():
            return batch_text(self.family, batch)

    def tensors(self) -> dict[str, Tensor]:
        """Every tensor to save in a checkpoint, by flat name."""
        of_adapter = self.adapter.tensors() if self.adapter else {}
        return self.update.tensors() | self.scale.tensors() | of_adapter

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Restores a checkpoint's tensors."""
        self.update.load(tensors)
        self.scale.load(tensors)
        if self.adapter is not None:
            self.adapter.load(tensors, self.family.parts())
