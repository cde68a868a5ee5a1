"""How the weights of convolutions lie in memory."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import nn

from mezzotint.recipe.sections.kernels import is_on
from mezzotint.recipe.sections.run import RunSettings


def lay_out(networks: Iterable[nn.Module], run: RunSettings, device: torch.device) -> None:
    """Puts convolutions' weights in the order that `run.kernels.channels_last` asks for, in place; the results of a
    convolution follow its weights."""
    likes_it = device.type == "cuda" and run.precision != "fp32" and run.compile and run.runtime != "fsdp"
    if is_on(run.kernels.channels_last, likes_it):
        for network in networks:
            nn.Module._apply(network, lambda t: t.to(memory_format=torch.channels_last) if t.ndim == 4 else t)
