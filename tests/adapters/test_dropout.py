"""Dropout before adapters: by address, for each sample and layer."""

from __future__ import annotations

import torch

from mezzotint.adapters.dropout import AddressedDropout, DropoutDraws

KEYS = torch.arange(1, 5, dtype=torch.int64) * 7919


def test_a_fifth_falls_out_and_the_rest_grows_so_that_the_mean_stays() -> None:
    where = DropoutDraws()
    layer, x = AddressedDropout(0.2, "denoiser/a", where), torch.ones(4, 5000)
    with where.at(KEYS):
        y = layer(x)
    assert set(y.unique().tolist()) == {0.0, 1.25}
    share = float((y == 0).float().mean())
    assert abs(share - 0.2) < 5 * (0.2 * 0.8 / y.numel()) ** 0.5, "within five standard deviations"


def test_a_sample_draws_the_same_wherever_it_stands_and_each_layer_for_itself() -> None:
    where = DropoutDraws()
    layer, x = AddressedDropout(0.5, "denoiser/a", where), torch.ones(8, 3, 50)
    with where.at(KEYS):
        whole, again, other = layer(x), layer(x), AddressedDropout(0.5, "denoiser/b", where)(x)
    with where.at(KEYS[2:]):
        part = layer(x[4:])
    assert torch.equal(whole, again), "what is computed again in the backward pass"
    assert torch.equal(whole[4:], part), "two rows for each sample"
    assert not torch.equal(whole, other)


def test_outside_of_a_training_step_nothing_falls_out() -> None:
    where = DropoutDraws()
    layer, x = AddressedDropout(0.5, "denoiser/a", where), torch.ones(2, 9)
    with where.at(KEYS[:2]):
        assert not torch.equal(layer(x), x)
    assert layer(x) is x
