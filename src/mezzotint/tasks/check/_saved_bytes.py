"""Bytes that a forward pass keeps for the backward pass, counted storage by storage."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn


@dataclass(slots=True)
class SavedBytes:
    """Within, counts the bytes of the storages that autograd saves, each once, those of `own` left out."""

    own: Iterable[Tensor]
    _seen: dict[int, torch.UntypedStorage] = field(default_factory=dict)
    _comes_and_goes: list[tuple[int, int]] = field(default_factory=list)
    _hooks: AbstractContextManager[Any] | None = None

    def __enter__(self) -> None:
        known = {t.untyped_storage()._cdata for t in self.own}

        def keep(tensor: Tensor) -> Tensor:
            storage = tensor.untyped_storage()
            if storage._cdata not in known:
                if storage._cdata not in self._seen:
                    self._comes_and_goes.append((storage.nbytes(), 0))
                self._seen[storage._cdata] = storage  # held, so that no other takes its place
            return tensor

        self._hooks = torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor)
        self._hooks.__enter__()

    def __exit__(self, *error: Any) -> None:
        assert self._hooks is not None
        self._hooks.__exit__(*error)

    @contextmanager
    def noting(self, networks: Iterable[nn.Module], sizes: Mapping[int, int]) -> Iterator[None]:
        """Within, notes when parameters are used first. sizes: of their gradients, by the parameter's id."""
        left = dict(sizes)

        def used(module: nn.Module, *_: Any) -> None:
            for parameter in module.parameters(recurse=False):
                if id(parameter) in left:
                    self._comes_and_goes.append((0, left.pop(id(parameter))))

        hooks = [module.register_forward_hook(used) for network in networks for module in network.modules()]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()

    def with_gradients(self, all_of_them: int) -> int:
        """The most bytes that lie there in a backward pass, which goes the forward pass's way back: where a parameter
        was used first its gradient is whole, and what was saved there is let go. all_of_them: bytes of all gradients;
        those whose use was not seen lie there from the start."""
        there = self.bytes + all_of_them - sum(gradient for _, gradient in self._comes_and_goes)
        most = there
        for saved, gradient in reversed(self._comes_and_goes):
            there += gradient - saved
            most = max(most, there)
        return most

    @property
    def bytes(self) -> int:
        """Of all that was saved."""
        return sum(storage.nbytes() for storage in self._seen.values())
