"""The step of `adamw`: one fused pass."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from mezzotint.settings.optimizers.adamw import AdamW
from mezzotint.training.optimizers.base import OptimizerStep
from mezzotint.training.optimizers.shared import AdamWStep


def step_of(settings: AdamW, masters: Mapping[str, Tensor], applied: Tensor) -> OptimizerStep:
    """AdamW with bias correction by the number of applied steps."""
    return AdamWStep(masters, applied, betas=settings.betas, eps=settings.eps)
