"""Where a token stands: tables of sines, and turns that keep lengths."""

from __future__ import annotations

import math

import torch

from mezzotint.compat.open_sora_plan.nets import _latte_positions as positions


def test_spatial_table_has_column_then_row() -> None:
    table = positions.plane((2, 3), 8, base=3, scale=1.0, device="cpu").view(2, 3, 8)
    assert torch.equal(table[0, :, :4], table[1, :, :4])
    assert torch.equal(table[:, 0, 4:], table[:, 2, 4:])
    assert torch.allclose(table[0, :, 0], torch.tensor([0.0, math.sin(1), math.sin(2)]))
    assert torch.allclose(table[1, 0, 4], torch.tensor(math.sin(1.5)))  # two rows span what three columns span


def test_times_are_divided_by_the_interpolation_scale() -> None:
    slow = positions.time(5, 8, scale=2.0, device="cpu")
    assert torch.equal(slow[::2], positions.time(3, 8, scale=1.0, device="cpu"))


def test_rotation_keeps_norms_and_depends_on_relative_position() -> None:
    turns = positions.time_rotation(6, 8, scale=1.0, device="cpu")
    q, k = torch.randn(2, 8, generator=torch.Generator().manual_seed(0))
    at_q, at_k = (positions.rotate(x.expand(1, 6, 8), turns)[0] for x in (q, k))
    assert torch.allclose(at_q.norm(dim=1), q.norm().expand(6), atol=1e-5)
    scores = at_q @ at_k.T
    assert torch.allclose(scores.diagonal(1), scores[0, 1].expand(5), atol=1e-4)
    assert not torch.allclose(scores[0, 1], scores[0, 2], atol=1e-3)


def test_scale_of_two_doubles_each_position() -> None:
    turns = positions.time_rotation(4, 8, scale=2.0, device="cpu")
    assert torch.equal(turns.cos[0], turns.cos[1])
    assert not torch.equal(turns.cos[1], turns.cos[2])
