from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from mezzotint import draws
from mezzotint.diffusion import noise
from mezzotint.diffusion.noise import _cosine, _minus_two_log


def words(text: str) -> Tensor:
    return torch.tensor([int(word, 16) for word in text.split()])


def words_of(keys: Tensor, blocks: int) -> Tensor:
    """(B, 4 · blocks): the words that a draw is made of, in order."""
    halves = torch.stack([keys & 0xFFFFFFFF, (keys >> 32) & 0xFFFFFFFF])
    counters = (torch.tensor([[n], [0], [0], [0]]).expand(4, len(keys)) for n in range(blocks))
    return torch.cat([noise.philox(counter, halves) for counter in counters]).T


def addresses(count: int, purpose: str = "noise") -> Tensor:
    return torch.from_numpy(draws.keys(7, purpose, 3, torch.arange(count).numpy()).view("int64"))


@pytest.mark.parametrize(
    ("counter", "key", "expected"),
    [
        ("0 0 0 0", "0 0", "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
        ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff", "408f276d 41c83b0e a20bc7c6 6d5451fd"),
        ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0", "d16cfe09 94fdcceb 5001e420 24126ea1"),
    ],
)
def test_philox_equals_published_known_answers(counter: str, key: str, expected: str) -> None:
    assert torch.equal(noise.philox(words(counter), words(key)), words(expected))


def test_philox_is_vectorized() -> None:
    counters = torch.stack([words("0 0 0 0"), words("243f6a88 85a308d3 13198a2e 03707344")], dim=1)
    keys = torch.stack([words("0 0"), words("a4093822 299f31d0")], dim=1)
    together = noise.philox(counters, keys)
    assert torch.equal(together[:, 0], words("6627e8d5 e169c58d bc57ac4c 9b00dbd8"))
    assert torch.equal(together[:, 1], words("d16cfe09 94fdcceb 5001e420 24126ea1"))


def test_draws_are_philox_of_address_and_block() -> None:
    key = addresses(1)
    w = words_of(key, 3)[0].double()
    radius = (-2 * ((w[0::2] + 1) * 2.0**-32).log()).sqrt()
    angle = w[1::2] * (2 * math.pi * 2.0**-32)
    expected = torch.stack([radius * angle.cos(), radius * angle.sin()], dim=1).flatten()
    torch.testing.assert_close(noise.normal(key, (12,))[0].double(), expected, rtol=0, atol=2e-6)


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(-(2**63), 2**63 - 1),
    samples=st.integers(1, 9),
    pick=st.integers(0, 8),
    long=st.integers(1, 300),
    short=st.integers(1, 300),
)
def test_element_depends_only_on_key_and_index(seed: int, samples: int, pick: int, long: int, short: int) -> None:
    keys = torch.arange(samples) + seed
    pick, short = pick % samples, min(short, long)
    alone = noise.normal(keys[pick : pick + 1], (short,))
    assert torch.equal(alone[0], noise.normal(keys, (long,))[pick, :short])


def test_shape_does_not_change_the_numbers() -> None:
    keys = addresses(3)
    flat = noise.normal(keys, (4 * 6 * 5,))
    assert torch.equal(noise.normal(keys, (4, 6, 5)), flat.view(3, 4, 6, 5))
    assert noise.normal(keys, ()).shape == (3,)
    assert noise.normal(keys, (0, 4)).shape == (3, 0, 4)
    assert noise.normal(keys[:0], (4, 2)).shape == (0, 4, 2)


def test_all_64_bits_of_an_address_count() -> None:
    keys = torch.tensor([0, 1, 1 << 31, 1 << 32, 1 << 33, -(1 << 63)])
    drawn = noise.normal(keys, (64,))
    assert len({tuple(row) for row in drawn.tolist()}) == len(keys)
    assert drawn.corrcoef().fill_diagonal_(0).abs().max() < 0.5


def test_normal_draws_are_normally_distributed() -> None:
    drawn = noise.normal(addresses(64), (4, 32, 32)).double()
    count = drawn.numel()
    assert abs(drawn.mean()) < 4 / math.sqrt(count)
    assert abs(drawn.var() - 1) < 4 * math.sqrt(2 / count)
    assert abs((drawn**3).mean()) < 4 * math.sqrt(15 / count)
    assert abs((drawn**4).mean() - 3) < 4 * math.sqrt(96 / count)
    for level in (0.5, 1.0, 2.0, 3.0):
        share = (drawn.abs() < level).double().mean()
        expected = math.erf(level / math.sqrt(2))
        assert abs(share - expected) < 4 * math.sqrt(expected * (1 - expected) / count)


def test_draws_at_different_addresses_are_not_correlated() -> None:
    size = 4096
    consecutive = torch.arange(24)  # raw neighbours, the hardest case
    for keys in (addresses(24), consecutive):
        apart = noise.normal(keys, (size,)).corrcoef().fill_diagonal_(0)
        assert apart.abs().max() < 5 / math.sqrt(size)
    row = noise.normal(addresses(1), (size * 16,))[0]
    for lag in (1, 2, 3, 4, 8, 64):
        assert abs((row[lag:] * row[:-lag]).mean()) < 5 / math.sqrt(len(row))


def test_extreme_inputs_give_finite_normals() -> None:
    edge = torch.tensor([0, 1, 2**31 - 1, 2**31, 2**31 + 1, 2**32 - 200, 2**32 - 1, 2**30, 3 * 2**30])
    squared = _minus_two_log(edge)
    assert torch.isfinite(squared).all()
    assert squared.min() > 0
    assert squared[0] == pytest.approx(64 * math.log(2), rel=1e-6)
    exact = (edge.double() * (2 * math.pi * 2.0**-32)).cos().float()
    torch.testing.assert_close(_cosine(edge), exact, rtol=0, atol=3e-7)


def test_logarithm_and_cosine_are_accurate_to_float32() -> None:
    w = words_of(addresses(64), 256)
    u = ((w + 1).float() * 2.0**-32).double()
    torch.testing.assert_close(_minus_two_log(w).double(), -2 * u.log(), rtol=5e-7, atol=0)
    exact = (w.double() * (2 * math.pi * 2.0**-32)).cos()
    torch.testing.assert_close(_cosine(w).double(), exact, rtol=0, atol=3e-7)


def test_recorded_numbers_stay_unchanged() -> None:
    # every operation is exact or correctly rounded, so that they hold on all machines; a change breaks every resume
    drawn = noise.normal(torch.tensor([0, 0x0123456789ABCDEF]), (5,)).flatten().tolist()
    assert [value.hex() for value in drawn] == [
        "0x1.fb76660000000p-1",
        "-0x1.d96d600000000p-1",
        "-0x1.3c37400000000p-1",
        "-0x1.eda3640000000p-2",
        "-0x1.3aa6aa0000000p-3",
        "0x1.c2d7dc0000000p-4",
        "-0x1.9b2fda0000000p-1",
        "-0x1.1c9b680000000p+1",
        "0x1.341f680000000p-2",
        "-0x1.862f600000000p-2",
    ]


def test_uniform_draws_are_uniform_and_depend_on_the_key() -> None:
    keys = addresses(64)
    drawn = noise.uniform(keys, (1024,))
    assert torch.equal(drawn[5, :12], (words_of(keys, 3)[5] >> 8).float() * 2.0**-24)
    assert torch.equal(noise.uniform(keys[5:6], (10,))[0], drawn[5, :10])
    assert 0 <= drawn.min() < drawn.max() < 1
    counts, expected = torch.histc(drawn, bins=16, min=0, max=1), drawn.numel() / 16
    assert ((counts - expected) ** 2 / expected).sum() < 45  # χ² with 15 degrees of freedom, p ≈ 1e-4
