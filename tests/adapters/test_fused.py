"""Adapters of fused layers: joining and splitting are exact."""

from __future__ import annotations

from typing import cast

import pytest
import torch
from torch import Tensor

from mezzotint.adapters import fused
from mezzotint.adapters.modules import MAGNITUDE, AdapterModule, Kind

ROWS = (8, 8, 8, 12)
WIDTH = 6


def module(kind: str, rows: int, seed: int, *, rank: int = 3, alpha: float | None = 2.0) -> AdapterModule:
    """A random module for a matrix with this number of rows."""
    draw = torch.Generator().manual_seed(seed)

    def random(*shape: int) -> Tensor:
        return torch.randn(shape, generator=draw)

    match kind:
        case "loha":
            tensors = {"hada_w1_a": random(rows, rank), "hada_w1_b": random(rank, WIDTH)}
            tensors |= {"hada_w2_a": random(rows, rank), "hada_w2_b": random(rank, WIDTH)}
        case "lokr":
            tensors = {
                "lokr_w1": random(2, 2),
                "lokr_w2_a": random(rows // 2, rank),
                "lokr_w2_b": random(rank, WIDTH // 2),
            }
        case _:
            tensors = {"lora_down.weight": random(rank, WIDTH), "lora_up.weight": random(rows, rank)}
    if kind == "dora":
        tensors[MAGNITUDE] = random(rows, 1).abs() + 0.5
    return AdapterModule(cast(Kind, kind if kind in ("loha", "lokr") else "lora"), tensors, alpha)


@pytest.mark.parametrize("kind", ["lora", "dora", "loha", "lokr"])
def test_split_fused_layer_changes_each_part_like_the_whole(kind: str) -> None:
    whole = module(kind, sum(ROWS), 0)
    weight = torch.randn(sum(ROWS), WIDTH)
    parts = fused.split(whole, ROWS)
    adapted = [part.merge_into(rows) for part, rows in zip(parts, weight.split(ROWS), strict=True) if part is not None]
    torch.testing.assert_close(torch.cat(adapted), whole.merge_into(weight))
    assert all(part is not None and part.fits((rows, WIDTH)) for part, rows in zip(parts, ROWS, strict=True))
    joined = fused.join(parts, ROWS)
    assert joined is not None
    assert joined.tensors.keys() == whole.tensors.keys()
    assert all(torch.equal(tensor, whole.tensors[name]) for name, tensor in joined.tensors.items())
    assert joined.scale == whole.scale


@pytest.mark.parametrize("kind", ["lora", "dora"])
@pytest.mark.parametrize("alphas", [(2.0, 2.0, 2.0, 2.0), (2.0, 1.0, None, 6.0)])
def test_joined_parts_are_block_diagonal_and_split_back_to_their_ranks(
    kind: str, alphas: tuple[float | None, ...]
) -> None:
    parts = [module(kind, rows, n, rank=2 + n % 2, alpha=alphas[n]) for n, rows in enumerate(ROWS)]
    joined = fused.join(parts, ROWS)
    assert joined is not None
    assert joined.rank == sum(part.rank for part in parts)
    weight = torch.randn(sum(ROWS), WIDTH)
    expected = torch.cat([part.merge_into(rows) for part, rows in zip(parts, weight.split(ROWS), strict=True)])
    torch.testing.assert_close(joined.merge_into(weight), expected)
    back = [part for part in fused.split(joined, ROWS) if part is not None]
    assert [part.rank for part in back] == [part.rank for part in parts]
    for part, original in zip(back, parts, strict=True):
        shape = (original.tensors["lora_up.weight"].shape[0], WIDTH)
        torch.testing.assert_close(part.difference(shape), original.difference(shape))


def test_parts_without_adapter_stay_unchanged() -> None:
    parts = [None, module("lora", 8, 1), None, None]
    joined = fused.join(parts, ROWS)
    assert joined is not None
    change = joined.difference((sum(ROWS), WIDTH))
    assert not change[:8].any()
    assert not change[16:].any()
    back = fused.split(joined, ROWS)
    assert [part is None for part in back] == [True, False, True, True]


def test_parts_that_cannot_be_joined_exactly_are_not_joined() -> None:
    assert fused.join([module("lokr", rows, n) for n, rows in enumerate(ROWS)], ROWS) is None
    assert fused.join([module("loha", rows, n) for n, rows in enumerate(ROWS)], ROWS) is None
    assert fused.join([None, module("dora", 8, 1), None, None], ROWS) is None
    other = fused.split(module("lokr", sum(ROWS), 5), ROWS)
    mixed = [*fused.split(module("lokr", sum(ROWS), 4), ROWS)[:3], other[3]]
    assert fused.join(mixed, ROWS) is None, "parts of two files"
    assert fused.join([None, *other[1:]], ROWS) is None, "a part is missing"


@pytest.mark.parametrize("kind", ["lora", "dora", "loha", "lokr"])
def test_swapping_halves_swaps_the_adapted_rows(kind: str) -> None:
    plain = module(kind, 8, 0)
    weight = torch.randn(8, WIDTH)
    swapped = fused.swap_halves(plain, (8, WIDTH))
    turned = torch.cat([weight[4:], weight[:4]])
    expected = plain.merge_into(weight)
    torch.testing.assert_close(swapped.merge_into(turned), torch.cat([expected[4:], expected[:4]]))
