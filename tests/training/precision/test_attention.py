"""Attention kernels, and messages if one is unavailable."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from mezzotint.errors import RecipeError
from mezzotint.families.sd import Family
from mezzotint.training.precision import attention


def test_sliced_attention_uses_half_the_heads_and_gives_equal_results() -> None:
    denoiser = Family.tiny().parts()["denoiser"]
    sliced = []
    for layer in (layer for layer in denoiser.modules() if hasattr(layer, "sliceable_head_dim")):
        layer.set_attention_slice = sliced.append  # type: ignore[assignment]
    attention.set_up(denoiser, "slice")
    assert sliced
    assert all(size >= 1 for size in sliced)
    with pytest.raises(RecipeError, match="cannot be sliced"):
        attention.set_up(nn.Linear(1, 1), "slice")


def test_missing_attention_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention, "find_spec", lambda name: None)
    attention.require_package("auto")
    with pytest.raises(RecipeError, match="xformers") as missing:
        attention.set_up(nn.Linear(1, 1), "xformers")
    assert missing.value.code == "E1062"


def test_unusable_kernel_is_named_and_other_errors_are_unchanged() -> None:
    cpu = torch.device("cpu")
    with pytest.raises(RecipeError, match=r"model\.attention is cudnn"), attention.use_attention("cudnn", cpu):
        raise RuntimeError("No available kernel. Aborting execution.")
    with pytest.raises(RuntimeError, match="shapes"), attention.use_attention("cudnn", cpu):
        raise RuntimeError("shapes")
