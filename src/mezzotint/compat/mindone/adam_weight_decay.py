"""The step of `adam-weight-decay`, MindSpore's rule: p ← p − lr (m / (√v + ε) + wd p), without bias correction of m and
v."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from mezzotint.compat.mindone.adam_weight_decay_settings import AdamWeightDecay
from mezzotint.training.optimizers.base import OptimizerStep
from mezzotint.training.optimizers.shared import AdamWStep


def step_of(settings: AdamWeightDecay, masters: Mapping[str, Tensor], applied: Tensor) -> OptimizerStep:
    """The fused pass of AdamW after infinitely many steps, where the bias correction is exactly 1."""
    endless = torch.full((), math.inf, dtype=torch.float32, device=next(iter(masters.values())).device)
    return AdamWStep(masters, endless, betas=settings.betas, eps=settings.eps)
