"""Dropout before adapters, determined by sample and layer."""

from __future__ import annotations

import torch

from mezzotint.adapters.dropout import AddressedDropout, DropoutDraws

KEYS = torch.arange(1, 5, dtype=torch.int64) * 7919


def test_dropout_zeroes_its_share_and_scales_the_rest() -> None:
    where = DropoutDraws()
    layer, x = AddressedDropout(0.2, "denoiser/a", where), torch.ones(4, 5000)
    with where.at(KEYS):
        y = layer(x)
    assert set(y.unique().tolist()) == {0.0, 1.25}
    share = float((y == 0).float().mean())
    assert abs(share - 0.2) < 5 * (0.2 * 0.8 / y.numel()) ** 0.5, "within five standard deviations"


def test_mask_depends_on_sample_and_layer_but_not_on_batch_position() -> None:
    where = DropoutDraws()
    layer, x = AddressedDropout(0.5, "denoiser/a", where), torch.ones(8, 3, 50)
    with where.at(KEYS):
        whole, again, other = layer(x), layer(x), AddressedDropout(0.5, "denoiser/b", where)(x)
    with where.at(KEYS[2:]):
        part = layer(x[4:])
    assert torch.equal(whole, again), "recomputation in the backward pass"
    assert torch.equal(whole[4:], part), "two rows per sample"
    assert not torch.equal(whole, other)


def test_dropout_is_inactive_outside_of_training_steps() -> None:
    where = DropoutDraws()
    layer, x = AddressedDropout(0.5, "denoiser/a", where), torch.ones(2, 9)
    with where.at(KEYS[:2]):
        assert not torch.equal(layer(x), x)
    assert layer(x) is x
