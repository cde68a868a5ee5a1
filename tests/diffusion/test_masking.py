"""Weights of latents from masks, against sums by hand."""

from __future__ import annotations

import pytest
import torch

from mezzotint.diffusion import learned_variance
from mezzotint.diffusion.masking import LossMask, pool_mask

MASK = torch.arange(2 * 6 * 8, dtype=torch.int64).reshape(2, 6, 8).mul(37).remainder(256).to(torch.uint8)


def test_mask_pooling_is_the_mean_over_pixels() -> None:
    result = pool_mask(MASK, 3, 2)
    for b in range(2):
        for row in range(3):
            for column in range(2):
                block = MASK[b, 2 * row : 2 * row + 2, 4 * column : 4 * column + 4].double() / 255
                assert float(result[b, row, column]) == pytest.approx(float(block.mean()), rel=1e-6)
    assert pool_mask(torch.full((1, 4, 4), 255, dtype=torch.uint8), 1, 1).item() == 1.0


@pytest.mark.parametrize("shape", [(2, 4, 3, 2), (2, 4, 1, 3, 2)])
def test_masked_loss_is_a_mean_over_weights_or_pixels(shape: tuple[int, ...]) -> None:
    errors, mask = torch.rand(shape, generator=torch.Generator().manual_seed(0)), pool_mask(MASK, 3, 2)
    weight = (0.1 + 0.9 * mask).double().reshape(2, 1, *[1] * (len(shape) - 4), 3, 2).expand(shape)
    sums = (weight * errors.double()).flatten(1).sum(1)
    for keeps_mean, over in ((True, weight.flatten(1).sum(1)), (False, float(errors[0].numel()))):
        weights = LossMask(0.1, keeps_mean).weights(MASK, errors)
        torch.testing.assert_close(learned_variance.mean(errors, weights).double(), sums / over, rtol=1e-5, atol=0)
    assert torch.equal(LossMask(0.1).weights(mask, errors), LossMask(0.1).weights(MASK, errors)), "cached or not"


def test_missing_mask_is_ones_and_zero_mask_gives_zero_loss() -> None:
    x_0 = torch.ones(1, 4, 3, 2)
    assert LossMask().weights(None, x_0) is None
    black = LossMask().weights(torch.zeros(1, 6, 8, dtype=torch.uint8), x_0)
    assert black is not None
    assert not black.any()
