"""Levels of mixed precision: dtypes of computations and results."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from mezzotint.settings.sections.run import RunSettings
from mezzotint.training.precision.mixed import arrange
from mezzotint.training.precision.policy import Precision

BF16, FP32 = torch.bfloat16, torch.float32


@pytest.mark.parametrize(
    ("level", "types"),
    [
        ("autocast", [BF16, FP32, FP32, FP32]),
        ("matmuls", [FP32, FP32, FP32, FP32]),
        ("most", [BF16, BF16, BF16, BF16]),
        ("all", [BF16, BF16, BF16, FP32]),
    ],
)
def test_results_have_the_dtype_of_the_level(level: str, types: list[torch.dtype]) -> None:
    """Of a linear layer, two norms and an activation."""
    settings = RunSettings(precision="bf16", half_precision=level)
    parts = [nn.Linear(4, 4), nn.GroupNorm(2, 4), nn.LayerNorm(4), nn.SiLU()]
    arrange([nn.Sequential(*parts)], settings, Precision.of(settings))
    with torch.autocast("cpu", dtype=BF16):
        assert [part(torch.randn(2, 4)).dtype for part in parts] == types


def test_norm_computes_in_float32_and_its_weights_train() -> None:
    settings = RunSettings(precision="bf16", half_precision="most")
    norm, plain = nn.LayerNorm(64), nn.LayerNorm(64)
    arrange([norm], settings, Precision.of(settings))
    x = 100 + torch.randn(2, 64)
    y = norm(x.bfloat16())
    torch.testing.assert_close(y, plain(x.bfloat16().float()).bfloat16(), rtol=0, atol=0)
    y.sum().backward()
    assert norm.weight.grad is not None
