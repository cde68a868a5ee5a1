"""Preservation by the base's own prediction (`objective.preserve`).

The base is the model without what is trained: the same networks with the adapter switched off, or a frozen copy of the
trained parts. It predicts without gradients, for the same noisy latents and timesteps as the trained model.

`output` is the idea of ai-toolkit's differential output preservation, `blank` of its blank prompt preservation,
`class-images` of OneTrainer's prior prediction. `prompts` holds the prediction for prompts that have nothing to do with
the images.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from mezzotint.adapters.trained import TrainedAdapter
from mezzotint.diffusion.objective import Objective
from mezzotint.families.base import ModelFamily, batch_text
from mezzotint.settings.sections.preserve import PreserveSettings
from mezzotint.stages import Batch, Condition, Loss, Noised, TextEmbedding


@dataclass(frozen=True, slots=True)
class BaseModel:
    """The model without what is trained. family: the trained networks, with their adapter, or a frozen copy."""

    family: ModelFamily
    adapter: TrainedAdapter | None = None

    @contextmanager
    def in_use(self) -> Iterator[ModelFamily]:
        """Context in which the family computes as the base, without gradients."""
        off = self.adapter.off(self.family.parts()) if self.adapter is not None else nullcontext()
        with torch.no_grad(), off:
            yield self.family


@dataclass(frozen=True, slots=True)
class Preservation:
    """trains_text: whether the base's embeddings of captions differ from those of the trained model."""

    settings: PreserveSettings
    base: BaseModel
    family: ModelFamily
    trains_text: bool

    def distance(
        self, objective: Objective, batch: Batch, noised: Noised, condition: Condition, predicted: Tensor
    ) -> Tensor:
        """The mean squared difference between trained model and base of each sample, (B,) float32. condition,
        predicted: of the sample's own caption. Called under the run's autocast and attention."""
        if self.settings.adds_pass:
            batch = replace(batch, captions=batch.preserved_captions, text=batch.preserved_text, dropped=None)
            text = self._text(self.family, batch)
            condition = self._condition(self.family, text, batch, condition)
            predicted = self.family.predict(noised, condition)
        with self.base.in_use() as family:
            text = self._text(family, batch) if self.trains_text else condition.text
            target = family.predict(noised, self._condition(family, text, batch, condition))
        return objective.distance(predicted, target, noised, condition.masks.get("latents"))

    def add_to(self, loss: Loss, batch: Batch, distance: Tensor) -> Loss:
        """A batch's loss with the preservation's."""
        weight = batch.weight.to(distance.device, non_blocking=True)
        if self.settings.adds_pass:
            assert batch.is_preserved is not None
            counted = batch.is_preserved.to(distance.device, non_blocking=True)
            return replace(loss, preserved=self.settings.weight * counted * weight * distance)
        assert batch.is_class is not None
        is_class = batch.is_class.to(distance.device, non_blocking=True)
        return replace(
            loss,
            per_sample=torch.where(is_class, distance, loss.per_sample),
            weight=torch.where(is_class, weight, loss.weight),
        )

    def _text(self, family: ModelFamily, batch: Batch) -> TextEmbedding:
        if batch.text is not None:
            return batch.text
        with nullcontext() if self.trains_text else torch.no_grad():
            return batch_text(family, batch).zero_samples(batch.dropped)

    def _condition(self, family: ModelFamily, text: TextEmbedding, batch: Batch, like: Condition) -> Condition:
        return replace(family.condition(text, batch), joined_images=like.joined_images, images=like.images)
