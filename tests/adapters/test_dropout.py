"""Dropout of adapters, determined by sample and layer."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from mezzotint.adapters.dropout import AddressedDropout, AddressedMask, DropoutDraws

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


@pytest.mark.parametrize(
    ("layer", "shape", "axis"),
    [
        (nn.Linear(3, 40), (8, 5, 3), 2),
        (nn.Conv2d(3, 40, 1), (8, 3, 4, 4), 1),
        (nn.Conv3d(3, 40, 1), (8, 3, 2, 4, 4), 1),
        (nn.Linear(3, 40), (8, 3), 1),
    ],
)
def test_masks_of_ranks_and_modules_are_drawn_for_each_sample(
    layer: nn.Module, shape: tuple[int, ...], axis: int
) -> None:
    where, x = DropoutDraws(), torch.ones(shape)
    plain = layer(x)
    for by_channel, factor in ((True, 4.0), (False, 1.0)):
        mask = AddressedMask(0.75, factor, "denoiser/a", where, by_channel=by_channel)
        with where.at(KEYS):
            masked = mask(layer, (x,), plain)
        kept = (masked / plain).transpose(1, axis).reshape(4, 2, 40, -1)
        assert set(kept.unique().tolist()) <= {0.0, factor}
        assert torch.equal(kept, kept[:, :1, :, :1].expand_as(kept)), "the same in all rows and places of a sample"
        first = kept[:, 0, :, 0]
        assert bool((first == first[:, :1]).all()) is not by_channel
        with where.at(KEYS[1:]):
            assert torch.equal(mask(layer, (x[2:],), plain[2:]), masked[2:])
    assert mask(layer, (x,), plain) is plain, "inactive outside of training steps"
