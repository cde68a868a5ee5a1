"""Random numbers by address: equal on every machine, uncorrelated between addresses."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mezzotint import draws

NUMBERS = st.integers(-(2**63), 2**63 - 1)


def test_mixing_is_splitmix64() -> None:
    # the published sequence of seed 1234567
    state, mask = 1234567, (1 << 64) - 1
    expected = [6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431]
    for value in expected:
        state = (state + draws._GOLDEN) & mask
        assert draws._mix(state) == value


@pytest.mark.parametrize(
    ("address", "value"),
    [
        ((0, "order"), 15308835235846887870),
        ((0, "order", 0), 2687391081245479126),
        ((1, "noise", 5, 3), 15335290147827422012),
        ((-1, "crop", "a/b.png", 2), 675877345511341224),
        ((9223372036854775808, "flip", 0, "ü"), 4423043671082105894),
    ],
)
def test_addresses_never_change(address: tuple[int, str], value: int) -> None:
    # resumed runs depend on these numbers: a change breaks every checkpoint
    assert draws.key(*address) == value


@given(st.integers(), st.text(max_size=9), st.lists(st.integers(-(2**63), 2**64 - 1) | st.text(max_size=5), max_size=4))
def test_key_has_64_bits_and_depends_only_on_its_address(seed: int, purpose: str, where: list[int | str]) -> None:
    key = draws.key(seed, purpose, *where)
    assert 0 <= key < 2**64
    assert key == draws.key(seed, purpose, *where)
    assert key != draws.key(seed + 1, purpose, *where)
    assert key != draws.key(seed, purpose + "x", *where)
    assert key != draws.key(seed, purpose, *where, 0)


@given(st.integers(), st.lists(NUMBERS, min_size=1, max_size=6), NUMBERS, st.text(max_size=5))
def test_arrays_of_keys_equal_single_keys(seed: int, rows: list[int], epoch: int, word: str) -> None:
    many = draws.keys(seed, "crop", epoch, np.array(rows, dtype=np.int64), word)
    assert many.dtype == np.uint64
    assert many.tolist() == [draws.key(seed, "crop", epoch, row, word) for row in rows]


def test_arrays_broadcast_and_all_integer_types_give_equal_keys() -> None:
    rows, visits = np.array([[1], [2]], dtype=np.int32), np.array([0, 1, 2], dtype=np.int16)
    grid = draws.keys(3, "flip", rows, visits)
    assert grid.shape == (2, 3)
    assert int(grid[1, 2]) == draws.key(3, "flip", 2, 2)
    unsigned = draws.keys(3, "flip", rows.astype(np.uint64), visits.astype(np.uint8))
    assert np.array_equal(grid, unsigned)
    assert draws.keys(3, "flip").tolist() == [draws.key(3, "flip")]


def test_order_of_address_parts_matters() -> None:
    assert draws.key(0, "p", 1, 2) != draws.key(0, "p", 2, 1)
    assert draws.key(0, "p", "ab") != draws.key(0, "p", "a", "b")


def test_many_keys_are_distinct_and_uniform() -> None:
    keys = draws.keys(7, "noise", np.arange(1_000_000, dtype=np.int64))
    assert len(np.unique(keys)) == 1_000_000
    numbers = draws.uniforms(keys)
    assert abs(numbers.mean() - 0.5) < 0.0015  # five standard errors
    counts, _ = np.histogram(numbers, bins=100, range=(0, 1))
    assert ((counts - 10_000) ** 2 / 10_000).sum() < 170  # chi-squared, 99 degrees: p about 1e-5
    neighbours = np.corrcoef(numbers[:-1], numbers[1:])[0, 1]
    assert abs(neighbours) < 0.005


def test_one_changed_bit_of_the_seed_changes_half_of_the_key() -> None:
    flips = [(draws.key(11, "order", 4) ^ draws.key(11 ^ (1 << bit), "order", 4)).bit_count() for bit in range(64)]
    assert 28 < sum(flips) / 64 < 36
    assert min(flips) > 12


@given(st.integers(0, 2**64 - 1))
def test_uniform_numbers_are_in_zero_to_one(address: int) -> None:
    number = draws.uniform(address)
    assert 0.0 <= number < 1.0
    assert draws.uniforms(np.array([address], dtype=np.uint64))[0] == number


@given(st.integers(0, 2**64 - 1), st.integers(1, 10**9))
def test_integers_are_below_their_bound(address: int, count: int) -> None:
    assert 0 <= draws.below(address, count) < count


def test_integers_reach_every_value() -> None:
    drawn = [draws.below(draws.key(0, "caption", i), 3) for i in range(3000)]
    assert all(900 < drawn.count(value) < 1100 for value in range(3))


def test_keys_do_not_depend_on_the_process() -> None:
    code = "from mezzotint import draws; print(draws.key(5, 'order', 'ü/b.png', 3))"
    for hash_seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", code], env={"PYTHONHASHSEED": hash_seed}, capture_output=True, text=True, check=True
        )
        assert int(done.stdout) == draws.key(5, "order", "ü/b.png", 3)


def test_file_names_that_are_not_utf_8_have_keys() -> None:
    assert draws.text_key("a\udcff") != draws.text_key("a\udcfe")
