"""Positions of tokens: sine tables and rotations, also against records of Open-Sora-Plan."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from mezzotint.compat.open_sora_plan.nets import _latte_positions as positions
from mezzotint.compat.open_sora_plan.nets.latte import LatteConfig

RECORD = Path(__file__).parents[3] / "parity" / "data" / "open-sora-plan" / "positions.safetensors"


def test_spatial_table_has_column_then_row() -> None:
    table = positions.plane((2, 3), 8, base=3, scale=1.0, device="cpu").view(2, 3, 8)
    assert torch.equal(table[0, :, :4], table[1, :, :4])
    assert torch.equal(table[:, 0, 4:], table[:, 2, 4:])
    assert torch.allclose(table[0, :, 0], torch.tensor([0.0, math.sin(1), math.sin(2)]))
    assert torch.allclose(table[1, 0, 4], torch.tensor(math.sin(1.5)))  # two rows span what three columns span


def test_temporal_table_does_not_depend_on_the_length() -> None:
    assert torch.equal(positions.time(7, 16, scale=1, device="cpu")[:3], positions.time(3, 16, scale=1, device="cpu"))


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


@pytest.mark.parametrize(("frames", "scale"), [(5, 1), (17, 1), (56, 3), (129, 8)])
def test_temporal_tables_match_the_record(frames: int, scale: int) -> None:
    expected = load_file(RECORD)[f"sincos1d_len{frames}_scale{scale}_dim64"]
    table = positions.time(frames, 64, scale=LatteConfig(video_length=frames).time_scale, device="cpu")
    torch.testing.assert_close(table, expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize(("grid", "base", "scale"), [((8, 8), 8, 1), ((8, 8), 16, 2), ((6, 10), 8, 1)])
def test_spatial_tables_match_the_record(grid: tuple[int, int], base: int, scale: int) -> None:
    expected = load_file(RECORD)[f"sincos2d_grid{grid[0]}x{grid[1]}_base{base}_scale{scale}_dim64"]
    table = positions.plane(grid, 64, base=base, scale=scale, device="cpu")
    torch.testing.assert_close(table, expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("scale", [1, 3])
def test_temporal_rotations_match_the_record(scale: int) -> None:
    recorded = load_file(RECORD)
    turns = positions.time_rotation(12, 16, scale=scale, device="cpu")
    turned = positions.rotate(recorded["rope.in_tokens_2x3x12x16"], turns)
    torch.testing.assert_close(turned, recorded[f"rope.out_1d_scale{scale}"], rtol=0, atol=1e-6)


@pytest.mark.parametrize("scale", [1, 2])
def test_spatial_rotations_match_the_record(scale: int) -> None:
    recorded = load_file(RECORD)
    turns = positions.plane_rotation((3, 4), 16, scale=scale, device="cpu")
    turned = positions.rotate(recorded["rope.in_tokens_2x3x12x16"], turns)
    torch.testing.assert_close(turned, recorded[f"rope.out_2d_scale{scale}"], rtol=0, atol=1e-6)
