"""One process, one device."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from mezzotint.recipe.sections.run import RunSettings
from mezzotint.runtimes import base


class Runtime(base.Runtime):
    """One process: nothing has to be exchanged."""

    def __init__(self, device: torch.device, launch: base.Launch, settings: RunSettings) -> None:
        self.device = device

    def prepare(
        self,
        parts: Mapping[str, nn.Module],
        trained: Mapping[str, nn.Parameter],
        blocks: Sequence[tuple[nn.Module, ...]] = (),
        weights: torch.dtype = torch.float32,
    ) -> Mapping[str, nn.Parameter]:
        for part in parts.values():
            part.to(self.device)
        return trained

    @contextmanager
    def micro_batch(self, last: bool) -> Iterator[None]:
        yield

    def grad_norms(self, trained: Mapping[str, nn.Parameter], scope: base.Scope) -> Tensor:
        return base.norms_of(trained, scope)

    def total(self, values: Tensor) -> Tensor:
        return values

    def agree(self, flags: int) -> int:
        return flags

    def barrier(self) -> None:
        pass

    def share(self, text: str) -> str:
        return text

    def close(self) -> None:
        pass
