"""Fake tensors in place of a model's parameters, on which its code runs without memory for values."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode


class WithoutPinning(TorchFunctionMode):
    """Leaves out page-locking of host tensors, which fake tensors do not have."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return args[0] if func is Tensor.pin_memory else func(*args, **(kwargs or {}))


def give_fakes(module: nn.Module, device: str) -> None:
    """Replaces every parameter and buffer with a fake tensor; shared ones stay shared."""
    fakes: dict[int, tuple[Tensor, Any]] = {}  # with the replaced tensor, to keep its id in use

    def fake(tensor: Tensor) -> Any:
        if id(tensor) not in fakes:
            empty = torch.empty(tensor.shape, dtype=tensor.dtype, device=device)
            is_parameter = isinstance(tensor, nn.Parameter)
            fakes[id(tensor)] = (tensor, nn.Parameter(empty, tensor.requires_grad) if is_parameter else empty)
        return fakes[id(tensor)][1]

    for child in module.modules():
        for tensors in (child._parameters, child._buffers):
            for name, tensor in tensors.items():
                if tensor is not None:
                    tensors[name] = fake(tensor)
