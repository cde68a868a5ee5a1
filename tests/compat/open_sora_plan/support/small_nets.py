"""Networks of LatteT2V and its autoencoder that are small enough for tests, and what goes into them."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from mezzotint.assets import MODELS
from mezzotint.compat.open_sora_plan.nets.causal_vae import CausalVAEConfig
from mezzotint.compat.open_sora_plan.nets.latte import Latte, LatteConfig

CAUSAL = CausalVAEConfig(hidden_size=32, hidden_size_mult=(1, 1, 1, 1), num_res_blocks=1)
LATTE = LatteConfig(
    num_layers=2,
    num_attention_heads=2,
    attention_head_dim=8,
    sample_size=(8, 8),
    video_length=3,
    caption_channels=12,
    model_max_length=6,
)


def released(name: str, part: str = "") -> dict[str, Any]:
    """A released configuration that ships."""
    config: dict[str, Any] = json.loads((MODELS / name / part / "config.json").read_text())
    return config


def tiny(**changes: Any) -> Latte:
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(0)
        network = Latte(replace(LATTE, **changes))
        for parameter in network.parameters():  # also those that start at zero or alike
            torch.nn.init.normal_(parameter, std=0.2)
    return network


def inputs(frames: int = 3, joined_images: int = 0, *, side: int = 8, batch: int = 2) -> dict[str, Tensor]:
    rng = torch.Generator().manual_seed(1)
    return {
        "latents": torch.randn(batch, 4, frames + joined_images, side, side, generator=rng),
        "timestep": torch.tensor([7, 800, 31, 2][:batch]),
        "text": torch.randn(batch, 1 + joined_images, 6, 12, generator=rng),
    }


def clip(frames: int, height: int = 16, width: int = 16) -> Tensor:
    return torch.rand(1, 3, frames, height, width, generator=torch.Generator().manual_seed(2)) * 2 - 1
