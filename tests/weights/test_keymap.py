"""Mapping between names of single files and of diffusers: joined, pointwise and duplicate tensors."""

from __future__ import annotations

import pytest
import torch

from mezzotint.weights.keymap import Entry, Table


def test_joined_tensors_are_split_and_joined_exactly() -> None:
    entry = Entry("joined", ("q", "k", "v"))
    whole = torch.randn(12, 5, generator=torch.Generator().manual_seed(0)).half()
    parts = entry.to_ours(whole)
    assert [tuple(part.shape) for part in parts.values()] == [(4, 5)] * 3
    assert torch.equal(parts["k"], whole[4:8])
    assert torch.equal(entry.to_foreign(parts), whole)


@pytest.mark.parametrize("shape", [(6, 4, 1, 1), (6, 4, 1), (6, 4)])
def test_pointwise_convolutions_become_linear_layers(shape: tuple[int, ...]) -> None:
    entry = Entry("conv", ("linear",), pointwise=True)
    linear = entry.to_ours(torch.arange(24.0).reshape(shape))["linear"]
    assert linear.shape == (6, 4)
    assert entry.to_foreign({"linear": linear}).shape == (6, 4, 1, 1)
    assert entry.to_ours(torch.ones(6, 4, 3, 3))["linear"].shape == (6, 4, 3, 3)


def test_split_tensors_own_their_memory() -> None:
    whole = torch.zeros(6, 2)
    parts = Entry("joined", ("q", "k", "v")).to_ours(whole)
    whole.fill_(1)
    assert all(not part.any() for part in parts.values())


def test_duplicate_names_are_an_assertion_error() -> None:
    with pytest.raises(AssertionError, match="is the name of two"):
        Table([Entry("a", ("x",)), Entry("a", ("y",))])
    with pytest.raises(AssertionError, match="is mapped twice"):
        Table([Entry("a", ("x",)), Entry("b", ("x",))])
