"""Adapters extracted from weight differences."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from mezzotint.adapters import extraction
from mezzotint.adapters.extraction import RankRule
from mezzotint.adapters.files import Adapter
from mezzotint.adapters.modules import MAGNITUDE, AdapterModule, row_lengths
from mezzotint.adapters.names import LayerName
from support.rounding import within

LAYER = LayerName("unet", "mid_block.proj_in")
CONVOLUTION = LayerName("unet", "mid_block.conv1")


def sampled(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("shape", [(12, 20), (12, 4, 3, 3)])
def test_difference_of_the_given_rank_is_extracted_exactly(shape: tuple[int, ...]) -> None:
    base = sampled(*shape)
    difference = 0.1 * (sampled(shape[0], 3, seed=1) @ sampled(3, base[0].numel(), seed=2)).reshape(shape)
    adapter, (remainder,) = extraction.extract_lora([(LAYER, base, base + difference)], RankRule(3))
    within(adapter.modules[LAYER].merge_into(base), base + difference, roundings=64)
    assert remainder.rank == 3
    assert remainder.share < 1e-5
    assert remainder.norm == pytest.approx(float(difference.norm()), rel=1e-4)


def test_remainder_reports_the_share_left_out() -> None:
    difference = torch.diag(torch.tensor([4.0, 3.0, 0.0, 0.0]))
    base = sampled(4, 4)
    _, (remainder,) = extraction.extract_lora([(LAYER, base, base + difference)], RankRule(1))
    assert remainder.share == pytest.approx(3 / 5, rel=1e-4)


@pytest.mark.parametrize(("share", "rank"), [(0.7, 1), (0.5, 2), (0.01, 3), (0.0, 4)])
def test_rank_is_the_smallest_within_the_allowed_share(share: float, rank: int) -> None:
    values = torch.tensor([4.0, 3.0, 1.0, 0.01])
    assert RankRule(4, share).choose(values, (4, 4)) == rank
    assert RankRule(2, share).choose(values, (4, 4)) == min(rank, 2)


@pytest.mark.parametrize(
    ("rule", "rank"),
    [
        # at least 8 / R
        ({"sv_ratio": 1}, 1), ({"sv_ratio": 1.9}, 1), ({"sv_ratio": 2}, 2), ({"sv_ratio": 8}, 4),
        ({"sv_ratio": 1e9}, 5),
        # sums 8, 12, 15, 16, 16: shares 0.5, 0.75, 0.9375, 1, 1
        ({"sv_cumulative": 0.01}, 1), ({"sv_cumulative": 0.5}, 1), ({"sv_cumulative": 0.51}, 2),
        ({"sv_cumulative": 0.75}, 2), ({"sv_cumulative": 0.94}, 4), ({"sv_cumulative": 1}, 4),
    ],
)  # fmt: skip
def test_singular_values_are_kept_by_ratio_or_by_cumulative_sum(rule: dict[str, float], rank: int) -> None:
    values = torch.tensor([8.0, 4.0, 3.0, 1.0, 1e-8])
    assert RankRule(5, **rule).choose(values, (5, 5)) == rank
    assert RankRule(2, **rule).choose(values, (5, 5)) == min(rank, 2)
    assert RankRule(5, **rule).choose(torch.zeros(5), (5, 5)) == 1


def test_convolutions_have_a_separate_rank_limit() -> None:
    base = sampled(12, 4, 3, 3)
    pairs = [
        (LAYER, sampled(12, 20), sampled(12, 20, seed=3)),
        (CONVOLUTION, base, base + sampled(12, 4, 3, 3, seed=4)),
    ]
    adapter, _ = extraction.extract_lora(pairs, RankRule(6, convolutions=2))
    assert (adapter.modules[LAYER].rank, adapter.modules[CONVOLUTION].rank) == (6, 2)
    assert adapter.modules[CONVOLUTION].tensors["lora_up.weight"].shape == (12, 2, 1, 1)


def test_equal_layers_get_no_adapter() -> None:
    base = sampled(4, 4)
    assert extraction.extract_lora([(LAYER, base, base.clone())], RankRule(2)) == (Adapter({}), [])
    nearly = base + 1e-4
    assert not extraction.extract_lora([(LAYER, base, nearly)], RankRule(2), threshold=1e-3)[0].modules


def test_resizing_to_the_same_or_a_larger_rank_changes_nothing() -> None:
    tensors = {"lora_down.weight": sampled(3, 20), "lora_up.weight": sampled(12, 3, seed=1)}
    adapter = Adapter({LAYER: AdapterModule("lora", tensors, alpha=6.0)})
    larger, (remainder,) = extraction.resize_adapter(adapter, RankRule(8), {}, {LAYER: (12, 20)})
    before, after = (each.modules[LAYER].difference((12, 20)) for each in (adapter, larger))
    within(after, before, roundings=64)
    assert remainder.share < 1e-5


def test_dora_is_resized_by_its_change_of_the_base() -> None:
    base = sampled(12, 20, seed=5)
    tensors = {
        "lora_down.weight": sampled(3, 20),
        "lora_up.weight": sampled(12, 3, seed=1),
        MAGNITUDE: 1.5 * row_lengths(base),
    }
    adapter: Any = Adapter({LAYER: AdapterModule("lora", tensors, alpha=3.0)})
    whole, _ = extraction.resize_adapter(adapter, RankRule(12), {LAYER: base}, {LAYER: (12, 20)})
    assert not whole.modules[LAYER].is_dora
    within(whole.modules[LAYER].merge_into(base), adapter.modules[LAYER].merge_into(base), roundings=128)
