"""What computes attention, and what is said where it cannot."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from mezzotint.errors import RecipeError
from mezzotint.families.sd import Family
from mezzotint.training.precision import attention


def test_slices_are_half_of_the_heads_and_compute_the_same() -> None:
    denoiser = Family.tiny().parts()["denoiser"]
    sliced = []
    for layer in (layer for layer in denoiser.modules() if hasattr(layer, "sliceable_head_dim")):
        layer.set_attention_slice = sliced.append  # type: ignore[assignment]
    attention.set_up(denoiser, "slice")
    assert sliced
    assert all(size >= 1 for size in sliced)
    with pytest.raises(RecipeError, match="cannot be sliced"):
        attention.set_up(nn.Linear(1, 1), "slice")


def test_a_package_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention, "find_spec", lambda name: None)
    attention.require_package("auto")
    with pytest.raises(RecipeError, match="xformers") as missing:
        attention.set_up(nn.Linear(1, 1), "xformers")
    assert missing.value.code == "E1062"


def test_a_kernel_that_cannot_compute_is_named_and_other_errors_are_not_touched() -> None:
    cpu = torch.device("cpu")
    with pytest.raises(RecipeError, match=r"model\.attention is cudnn"), attention.use_attention("cudnn", cpu):
        raise RuntimeError("No available kernel. Aborting execution.")
    with pytest.raises(RuntimeError, match="shapes"), attention.use_attention("cudnn", cpu):
        raise RuntimeError("shapes")
