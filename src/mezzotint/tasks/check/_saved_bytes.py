"""Bytes that a forward pass saves for the backward pass, counted storage by storage."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn


@dataclass(slots=True)
class SavedBytes:
    """Context that counts the bytes of the storages that autograd saves, each once, without `excluded_tensors`."""

    excluded_tensors: Iterable[Tensor]
    _storages: dict[int, torch.UntypedStorage] = field(default_factory=dict)
    _saved_and_gradients: list[tuple[int, int]] = field(default_factory=list)
    _hooks: AbstractContextManager[Any] | None = None

    def __enter__(self) -> None:
        excluded = {t.untyped_storage()._cdata for t in self.excluded_tensors}

        def keep(tensor: Tensor) -> Tensor:
            storage = tensor.untyped_storage()
            if storage._cdata not in excluded:
                if storage._cdata not in self._storages:
                    self._saved_and_gradients.append((storage.nbytes(), 0))
                self._storages[storage._cdata] = storage  # kept alive, so no other storage gets its address
            return tensor

        self._hooks = torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor)
        self._hooks.__enter__()

    def __exit__(self, *error: Any) -> None:
        assert self._hooks is not None
        self._hooks.__exit__(*error)

    @contextmanager
    def record_first_use(self, networks: Iterable[nn.Module], sizes: Mapping[int, int]) -> Iterator[None]:
        """Context that records when parameters are first used. sizes: of their gradients, by the parameter's id."""
        left = dict(sizes)

        def record_use(module: nn.Module, *_: Any) -> None:
            for parameter in module.parameters(recurse=False):
                if id(parameter) in left:
                    self._saved_and_gradients.append((0, left.pop(id(parameter))))

        hooks = [module.register_forward_hook(record_use) for network in networks for module in network.modules()]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()

    def with_gradients(self, all_of_them: int) -> int:
        """The peak bytes of a backward pass, which reverses the forward pass: where a parameter was first used its
        gradient is complete, and what was saved there is freed. all_of_them: bytes of all gradients; those whose use
        was not recorded are allocated from the start."""
        current = self.bytes + all_of_them - sum(gradient for _, gradient in self._saved_and_gradients)
        peak = current
        for saved, gradient in reversed(self._saved_and_gradients):
            current += gradient - saved
            peak = max(peak, current)
        return peak

    @property
    def bytes(self) -> int:
        """Bytes of everything that was saved."""
        return sum(storage.nbytes() for storage in self._storages.values())
