"""Dtypes of a run, and the loss scale."""

from __future__ import annotations

import pytest
import torch

from mezzotint.settings.sections.run import RunSettings, ScalerSettings
from mezzotint.training.precision.policy import LossScale, Precision

FP16 = Precision.of(RunSettings(precision="fp16"))
CPU = torch.device("cpu")


@pytest.mark.parametrize(
    ("settings", "words", "separate"),
    [
        ({"precision": "fp32"}, "fp32 computation, trained weights fp32 (float32), frozen fp32", False),
        (
            {"precision": "bf16", "weight_dtype": "pure", "frozen_dtype": "fp32", "vae_dtype": "fp16"},
            "bf16 computation, trained weights bf16 (no masters), frozen fp32, VAE fp16",
            False,
        ),
    ],
)
def test_recipe_settings_become_dtypes(settings: dict[str, str], words: str, separate: bool) -> None:
    precision = Precision.of(RunSettings(**settings))
    assert str(precision) == words
    assert precision.separate_masters == separate


def test_loss_scale_grows_after_clean_steps_and_halves_on_overflow() -> None:
    scale = LossScale(ScalerSettings(init=8.0, growth=2.0, growth_interval=2), FP16, CPU)
    values = []
    for step, overflow in enumerate((0.0, 0.0, 1.0, 0.0)):
        scale.update(torch.tensor(overflow), step)
        values.append(float(scale.scale))
    assert values == [8.0, 16.0, 8.0, 8.0]
    again = LossScale(ScalerSettings(init=8.0, growth_interval=2), FP16, CPU)
    again.load(scale.tensors())
    again.update(torch.tensor(0.0), 4)
    assert float(again.scale) == 16.0, "the clean step before the checkpoint counts"


def test_loss_scale_without_fp16_is_one_and_has_no_state() -> None:
    scale = LossScale(ScalerSettings(init=8.0), Precision.of(RunSettings(precision="bf16")), CPU)
    scale.update(torch.tensor(1.0), 0)
    assert float(scale.scale) == 1.0
    assert scale.tensors() == {}
