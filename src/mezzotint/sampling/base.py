"""What every sampler is, and the one loop that walks it: from noise to latents, step by step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol

from torch import Tensor

Network = Callable[[Tensor, Any], Tensor]
"""What a sampler asks of the denoiser, guidance included: (x (B, C, …), a level) → (B, C, …). A descent in timesteps
asks for the output at a timestep, one in σ for the clean picture at a σ."""

Noise = Callable[[int], Tensor]
"""Standard normal noise in the shape of x, for a step by number."""


class Sampler(Protocol):
    """A way from noise to latents. It keeps its place, so each picture or batch of them has a sampler of its own."""

    def __len__(self) -> int:
        """How many steps there are."""

    def start(self, noise: Tensor) -> Tensor:
        """Where it begins. noise: (B, C, …) standard normal."""

    def step(self, number: int, x: Tensor, network: Network, noise: Noise) -> Tensor:
        """x after step `number`, from 0. noise: asked for the numbers of steps that add any."""


def trajectory(sampler: Sampler, x: Tensor, network: Network, noise: Noise) -> Iterator[Tensor]:
    """x after every step."""
    for number in range(len(sampler)):
        x = sampler.step(number, x, network, noise)
        yield x


def descend(sampler: Sampler, x: Tensor, network: Network, noise: Noise) -> Tensor:
    """x after the last step; x itself where there is none."""
    for state in trajectory(sampler, x, network, noise):
        x = state
    return x
