"""The constructed autoencoder: latents are mean colours, in any suitable structure."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.functional import avg_pool2d

from mezzotint.weights.folder import components, plain_vae


def _vae(widths: list[int], groups: int, layers: int = 1) -> dict[str, Any]:
    return {
        "block_out_channels": widths,
        "down_block_types": ["DownEncoderBlock2D"] * len(widths),
        "up_block_types": ["UpDecoderBlock2D"] * len(widths),
        "norm_num_groups": groups,
        "layers_per_block": layers,
        "latent_channels": 4,
    }


@pytest.mark.parametrize(
    "config", [_vae([16, 32, 32], 4), _vae([16, 16], 4), _vae([32, 32, 64, 64], 8, 2), _vae([20, 40], 5)]
)
def test_latents_are_mean_colours_and_decode_back(config: dict[str, Any]) -> None:
    vae: Any = components.random_network("vae", config, 0, "vae", where=Path("config.json"))
    factor = 2 ** (len(config["block_out_channels"]) - 1)
    flat = torch.tensor([0.9, -0.4, 0.1]).reshape(1, 3, 1, 1).expand(1, 3, 32, 32)
    noisy = torch.rand(2, 3, 32, 32, generator=torch.Generator().manual_seed(0)) * 2 - 1
    pixels = torch.cat((flat, noisy))
    with torch.no_grad():
        posterior = vae.encode(pixels).latent_dist
        back = vae.decode(posterior.mean).sample
    blocks = avg_pool2d(pixels, factor)
    assert torch.allclose(posterior.mean[:, :3], blocks, atol=2e-3)
    assert torch.allclose(posterior.mean[:, 3], blocks.mean(1), atol=2e-3)
    assert 0 < posterior.std.max() < 0.01
    inner = slice(factor, -factor)  # the border fades to the grey that convolutions pad with
    assert torch.allclose(back[:1, :, inner, inner], flat[..., inner, inner], atol=5e-3)


@pytest.mark.parametrize("change", [{"norm_num_groups": 8}, {"latent_channels": 3}, {"in_channels": 4}])
def test_unsuitable_structure_stays_random(change: dict[str, Any]) -> None:
    config = _vae([16, 16], 4) | change
    assert not plain_vae.fits(config)
    vae: Any = components.random_network("vae", config, 0, "vae", where=Path("config.json"))
    assert vae.encoder.mid_block.resnets[0].conv2.weight.abs().sum() > 0
