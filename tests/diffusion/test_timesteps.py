from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from mezzotint import draws
from mezzotint.diffusion import timesteps

address = st.integers(0, 2**64 - 1)


@given(st.lists(address, min_size=1, max_size=20), st.integers(0, 999), st.integers(1, 2**32 - 1000))
def test_timesteps_equal_the_uniform_draw(addresses: list[int], low: int, width: int) -> None:
    drawn = timesteps.draw(np.array(addresses, dtype=np.uint64), low, low + width)
    assert drawn.dtype == np.int64
    assert drawn.tolist() == [low + draws.below(a, width) for a in addresses]


def test_lower_half_of_an_address_carries_over() -> None:
    # so wide a range that nearly every second draw needs the carry
    addresses, width = draws.keys(0, "timestep", 0, np.arange(100)), 2**32 - 5
    assert timesteps.draw(addresses, 0, width).tolist() == [draws.below(int(a), width) for a in addresses]


def test_extreme_addresses_give_first_and_last_timestep() -> None:
    ends = np.array([0, 2**64 - 1], dtype=np.uint64)
    assert timesteps.draw(ends, 0, 1000).tolist() == [0, 999]
    assert timesteps.draw(ends, 300, 301).tolist() == [300, 300]


def test_timesteps_are_uniform() -> None:
    drawn = timesteps.draw(draws.keys(0, "timestep", 0, np.arange(100_000)), 0, 50)
    counts = np.bincount(drawn, minlength=50)
    assert ((counts - 2000) ** 2 / 2000).sum() < 90  # χ² with 49 degrees of freedom, p ≈ 3e-4


def test_empty_batch_draws_nothing() -> None:
    assert timesteps.draw(np.array([], dtype=np.uint64), 0, 1000).shape == (0,)


weight = st.lists(st.floats(0, 10), min_size=1, max_size=40).filter(any)


@given(weight, st.lists(address, min_size=1, max_size=20))
def test_weighted_draw_inverts_cumulative_shares(weights: list[float], addresses: list[int]) -> None:
    table = timesteps.share_table(np.array(weights))
    drawn = timesteps.draw_shared(np.array(addresses, dtype=np.uint64), table)
    assert drawn.dtype == np.int64
    sums = np.cumsum(weights) / np.cumsum(weights)[-1]
    for a, t in zip(addresses, drawn.tolist(), strict=True):
        assert weights[t] > 0, "what has no share is never drawn"
        u = (a >> 11) / 2**53
        assert (sums[t - 1] if t else 0.0) - 1e-15 <= u <= sums[t] + 1e-15


def test_extreme_addresses_give_ends_of_weighted_draw() -> None:
    ends = np.array([0, 2**64 - 1], dtype=np.uint64)
    assert timesteps.draw_shared(ends, timesteps.share_table(np.array([0.0, 1.0, 3.0, 2.0, 0.0]))).tolist() == [1, 3]
    thirds = timesteps.share_table(np.full(1000, 1 / 3))  # whose sum is rounded
    assert timesteps.draw_shared(ends, thirds).tolist() == [0, 999]


def test_weighted_draws_follow_their_shares() -> None:
    weights = timesteps.bias_weights("range", multiplier=4.0, begin=10, end=20, num_timesteps=50)
    drawn = timesteps.draw_shared(draws.keys(0, "timestep", 0, np.arange(100_000)), timesteps.share_table(weights))
    expected = weights * 100_000
    counts = np.bincount(drawn, minlength=50)
    assert ((counts - expected) ** 2 / expected).sum() < 90  # χ² with 49 degrees of freedom, p ≈ 3e-4
    assert expected[10] == expected[19] == 4 * expected[20]


def test_equal_shares_equal_the_uniform_draw() -> None:
    addresses = draws.keys(1, "timestep", 0, np.arange(10_000))
    shared = timesteps.draw_shared(addresses, timesteps.share_table(np.ones(1000)))
    assert (shared == timesteps.draw(addresses, 0, 1000)).mean() > 0.999, "the same but for the last bits"
