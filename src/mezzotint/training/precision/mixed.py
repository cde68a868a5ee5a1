"""Which modules of a trained network compute in the smaller type: MindSpore's levels of mixed precision, on autocast.

| `run.half_precision` | convolutions, linear layers, attention | their results | norms | SiLU | what lies between |
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

from mezzotint.settings.sections.run import RunSettings
from mezzotint.training.precision.policy import Precision

_PRODUCTS = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose2d)
_NORMS = (nn.GroupNorm, nn.LayerNorm)


def arrange(networks: Sequence[nn.Module], settings: RunSettings, precision: Precision) -> None:
    """Prepares networks for `run.half_precision`, before they are compiled or recomputed. Without effect in float32."""
    small, level = precision.compute, settings.half_precision
    if small == torch.float32 or level == "autocast":
        return
    for module in (module for network in networks for module in network.modules()):
        is_norm = isinstance(module, _NORMS) or type(module).__name__.endswith("RMSNorm")
        forward: Callable[..., Tensor] = module.forward
        if level == "matmuls" and isinstance(module, _PRODUCTS):
            forward = _widened(forward)
        elif level == "most" and (is_norm or isinstance(module, nn.SiLU)):
            forward = _computed(module, forward, torch.float32, small)
        elif level == "all" and is_norm:
            forward = _computed(module, forward, small, small)
        if forward != module.forward:
            module.forward = forward


def _widened(forward: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Autocast computes in the smaller type; the result goes on in float32."""

    def run(*inputs: Any, **named: Any) -> Tensor:
        return forward(*inputs, **named).float()

    return run


def _computed(
    module: nn.Module, forward: Callable[..., Tensor], dtype: torch.dtype, handed_on: torch.dtype
) -> Callable[..., Tensor]:
    """A norm or an activation in a type, its weights cast to it; gradients go back to the weights as they are. The
    result goes on in another."""

    def run(x: Tensor) -> Tensor:
        with torch.autocast(x.device.type, enabled=False):
            x = x.to(dtype)
            if not isinstance(module, _NORMS):
                return forward(x).to(dtype).to(handed_on)
            weight, bias = (None if p is None else p.to(dtype) for p in (module.weight, module.bias))
            if isinstance(module, nn.GroupNorm):
                return nn.functional.group_norm(x, module.num_groups, weight, bias, module.eps).to(handed_on)
            return nn.functional.layer_norm(x, module.normalized_shape, weight, bias, module.eps).to(handed_on)

    return run
