from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from mezzotint import draws
from mezzotint.diffusion import timesteps

address = st.integers(0, 2**64 - 1)


@given(st.lists(address, min_size=1, max_size=20), st.integers(0, 999), st.integers(1, 2**32 - 1000))
def test_it_is_the_even_draw_of_draws(addresses: list[int], low: int, width: int) -> None:
    drawn = timesteps.draw(np.array(addresses, dtype=np.uint64), low, low + width)
    assert drawn.dtype == np.int64
    assert drawn.tolist() == [low + draws.below(a, width) for a in addresses]


def test_the_lower_half_of_an_address_carries_over() -> None:
    # so wide a range that nearly every second draw needs the carry
    addresses, width = draws.keys(0, "timestep", 0, np.arange(100)), 2**32 - 5
    assert timesteps.draw(addresses, 0, width).tolist() == [draws.below(int(a), width) for a in addresses]


def test_the_ends_are_reached_and_not_passed() -> None:
    ends = np.array([0, 2**64 - 1], dtype=np.uint64)
    assert timesteps.draw(ends, 0, 1000).tolist() == [0, 999]
    assert timesteps.draw(ends, 300, 301).tolist() == [300, 300]


def test_every_timestep_comes_equally_often() -> None:
    drawn = timesteps.draw(draws.keys(0, "timestep", 0, np.arange(100_000)), 0, 50)
    counts = np.bincount(drawn, minlength=50)
    assert ((counts - 2000) ** 2 / 2000).sum() < 90  # χ² with 49 degrees of freedom, p ≈ 3e-4


def test_an_empty_batch_draws_nothing() -> None:
    assert timesteps.draw(np.array([], dtype=np.uint64), 0, 1000).shape == (0,)
