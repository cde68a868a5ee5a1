"""A small autoencoder of clips, made once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from small_nets import CAUSAL
from torch import nn

from mezzotint.compat.open_sora_plan.nets.causal_vae import CausalVAE


@pytest.fixture(scope="session")
def _network() -> CausalVAE:
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(0)
        network = CausalVAE(CAUSAL)
        for parameter in network.parameters():
            if parameter.ndim == 1:
                nn.init.normal_(parameter, mean=0.5, std=0.2)
    return network.eval().requires_grad_(False)


@pytest.fixture
def network(_network: CausalVAE) -> Iterator[CausalVAE]:
    yield _network
    _network.tiling = None
    _network.keep_norms_in_float32(False)
