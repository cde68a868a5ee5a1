"""Adafactor is torch's own."""

from __future__ import annotations

import torch
from stepping import as_the_class_alone


def test_it_is_torchs_with_the_settings_of_the_recipe() -> None:
    as_the_class_alone("adafactor", torch.optim.Adafactor)
    options = {"beta2_decay": -0.5, "eps": (None, 1e-2), "d": 1.5}
    as_the_class_alone({"kind": "adafactor", "beta2_decay": -0.5, "eps": 1e-2, "clip_update": 1.5},
                       torch.optim.Adafactor, **options)  # fmt: skip
