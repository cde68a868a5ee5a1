"""Which modules of a trained network compute in the smaller type: MindSpore's levels of mixed precision, on autocast.

| `run.half` | convolutions, linear layers, attention | their results | norms | SiLU | what lies between |
|---|---|---|---|---|---|
| `autocast` | smaller type | smaller type | torch's lists | in its input's type | in its inputs' type |
| `products` (O1) | smaller type | float32 | float32 | float32 | float32 |
| `most` (O2) | smaller type | smaller type | float32, handed on smaller | the same | smaller type |
| `all` (O3) | smaller type | smaller type | smaller type | smaller type | smaller type |

Attention takes queries, keys and values in the smaller type at every level, and its softmax sums in float32 inside the
kernel. O0 is `run.precision: fp32`. Weights stay float32 and are cast where they are used.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from mezzotint.recipe.sections.run import RunSettings
from mezzotint.training.precision.policy import Precision

_PRODUCTS = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose2d)
_NORMS = (nn.GroupNorm, nn.LayerNorm)


def arrange(networks: Sequence[nn.Module], settings: RunSettings, precision: Precision) -> None:
    """Prepares networks for `run.half`, before they are compiled or recomputed. Without effect in float32."""
    if precision.compute == torch.float32 or settings.half == "autocast":
        return
    for network in networks:
        for module in network.modules():
            wrap = _wrap(module, settings.half)
            if wrap is not None:
                module.forward = wrap(module, module.forward, precision.compute)


_Forward = Callable[..., Tensor]
_Wrap = Callable[[nn.Module, _Forward, torch.dtype], _Forward]


def _wrap(module: nn.Module, level: str) -> _Wrap | None:
    is_norm = isinstance(module, _NORMS) or type(module).__name__.endswith("RMSNorm")
    match level:
        case "products":
            return _widened if isinstance(module, _PRODUCTS) else None
        case "most":
            return _in_float32 if is_norm or isinstance(module, nn.SiLU) else None
        case "all":
            return _narrow if is_norm else None
        case _:
            raise AssertionError(level)


def _widened(module: nn.Module, forward: _Forward, dtype: torch.dtype) -> _Forward:
    """Autocast computes in the smaller type; the result goes on in float32."""

    def run(*inputs: Any, **named: Any) -> Tensor:
        return forward(*inputs, **named).float()

    return run


def _in_float32(module: nn.Module, forward: _Forward, dtype: torch.dtype) -> _Forward:
    """Within in float32, with weights of whatever type; the result goes on in the smaller one."""

    def run(x: Tensor) -> Tensor:
        with torch.autocast(x.device.type, enabled=False):
            return _computed(module, forward, x, torch.float32).to(dtype)

    return run


def _narrow(module: nn.Module, forward: _Forward, dtype: torch.dtype) -> _Forward:
    def run(x: Tensor) -> Tensor:
        with torch.autocast(x.device.type, enabled=False):
            return _computed(module, forward, x, dtype)

    return run


def _computed(module: nn.Module, forward: _Forward, x: Tensor, dtype: torch.dtype) -> Tensor:
    """A norm or an activation in a type, its weights cast to it; gradients go back to the weights as they are."""
    weights = {name: p.to(dtype) for name, p in module.named_parameters(recurse=False)}
    if not weights:
        return forward(x.to(dtype))
    if isinstance(module, nn.GroupNorm):
        return nn.functional.group_norm(
            x.to(dtype), module.num_groups, weights.get("weight"), weights.get("bias"), module.eps
        )
    if isinstance(module, nn.LayerNorm):
        return nn.functional.layer_norm(
            x.to(dtype), module.normalized_shape, weights.get("weight"), weights.get("bias"), module.eps
        )
    return forward(x.to(dtype)).to(dtype)
