"""Stochastic rounding to bf16."""

from __future__ import annotations

import pytest
import torch

from mezzotint import draws
from mezzotint.training.precision import stochastic
from mezzotint.training.precision.stochastic import round_to_bf16


def test_a_value_becomes_a_neighbour_with_chances_that_keep_its_mean() -> None:
    values = torch.tensor([1.0 + 2.0**-9, -3.0 - 2.0**-12, 1e-30]).repeat(20_000, 1)  # a half, a 64th, anywhere
    rounded = round_to_bf16(values, draws.key(0, "test")).float()
    for number, exact in enumerate(values[0]):
        seen = rounded[:, number].unique()
        low, high = seen.tolist()
        assert low < float(exact) < high
        assert torch.nextafter(seen[0].bfloat16(), seen[1].bfloat16()) == seen[1]
        up = (float(exact) - low) / (high - low)
        share = float((rounded[:, number] == high).float().mean())
        assert abs(share - up) < 5 * (up * (1 - up) / 20_000) ** 0.5, "within five standard deviations"


def test_numbers_of_bf16_stay_as_they_are() -> None:
    exact = torch.tensor([0.0, -0.0, 1.0, -2.5, float("inf"), -float("inf"), 2.0**-130, 3e38]).bfloat16()
    assert torch.equal(round_to_bf16(exact.float(), 1).view(torch.int16), exact.view(torch.int16))
    assert bool(round_to_bf16(torch.tensor([float("nan")]), 1).isnan().all())


def test_draws_depend_on_address_and_place_only(monkeypatch: pytest.MonkeyPatch) -> None:
    values = torch.full((7, 11), 1.0 + 2.0**-9)
    whole = round_to_bf16(values, draws.key(0, "a"))
    torch.rand(3)
    assert torch.equal(round_to_bf16(values[:3], draws.key(0, "a")), whole[:3])
    assert torch.equal(round_to_bf16(values.t().contiguous().t(), draws.key(0, "a")), whole), "in any memory format"
    assert not torch.equal(round_to_bf16(values, draws.key(0, "b")), whole)
    monkeypatch.setattr(stochastic, "PIECE", 8)
    assert torch.equal(round_to_bf16(values, draws.key(0, "a")), whole)


def test_words_are_those_of_splitmix64() -> None:
    # the first three outputs of the published generator with seed 1234567
    words = stochastic._words(1234567, torch.arange(3))
    assert [word % 2**64 for word in words.tolist()] == [
        6457827717110365317, 3203168211198807973, 9817491932198370423,
    ]  # fmt: skip
