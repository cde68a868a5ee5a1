"""Which modules of a trained network compute in half precision: MindSpore's mixed precision levels, on autocast.

| `run.half_precision` | convolutions, linear layers, attention | their results | norms | SiLU | everything between |
|---|---|---|---|---|---|
| `autocast` | half | half | torch's lists | dtype of its input | dtype of its inputs |
| `matmuls` (O1) | half | float32 | float32 | float32 | float32 |
| `most` (O2) | half | half | float32, result half | float32, result half | half |
| `all` (O3) | half | half | half | half | half |

Attention takes queries, keys and values in half precision at every level, and its softmax sums in float32 inside the
kernel. O0 is `run.precision: fp32`. Weights stay float32 and are cast where they are used.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from mezzotint.settings.sections.run import RunSettings
from mezzotint.training.precision.policy import Precision

_MATMULS = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose2d)
_NORMS = (nn.GroupNorm, nn.LayerNorm)


def arrange(networks: Sequence[nn.Module], settings: RunSettings, precision: Precision) -> None:
    """Prepares networks for `run.half_precision`, before compilation and recomputation. No effect in float32."""
    small, level = precision.compute, settings.half_precision
    if small == torch.float32 or level == "autocast":
        return
    for module in (module for network in networks for module in network.modules()):
        is_norm = isinstance(module, _NORMS) or type(module).__name__.endswith("RMSNorm")
        forward: Callable[..., Tensor] = module.forward
        if level == "matmuls" and isinstance(module, _MATMULS):
            forward = _with_float32_result(forward)
        elif level == "most" and (is_norm or isinstance(module, nn.SiLU)):
            forward = _compute_in(module, forward, torch.float32, small)
        elif level == "all" and is_norm:
            forward = _compute_in(module, forward, small, small)
        if forward != module.forward:
            module.forward = forward


def _with_float32_result(forward: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Autocast computes in half precision; the result is cast to float32."""

    def run(*inputs: Any, **named: Any) -> Tensor:
        return forward(*inputs, **named).float()

    return run


def _compute_in(
    module: nn.Module, forward: Callable[..., Tensor], dtype: torch.dtype, result_dtype: torch.dtype
) -> Callable[..., Tensor]:
    """Computes a norm or an activation in `dtype`, with its weights cast to it; gradients reach the weights."""

    def run(x: Tensor) -> Tensor:
        with torch.autocast(x.device.type, enabled=False):
            x = x.to(dtype)
            if not isinstance(module, _NORMS):
                return forward(x).to(dtype).to(result_dtype)
            weight, bias = (None if p is None else p.to(dtype) for p in (module.weight, module.bias))
            if isinstance(module, nn.GroupNorm):
                return nn.functional.group_norm(x, module.num_groups, weight, bias, module.eps).to(result_dtype)
            return nn.functional.layer_norm(x, module.normalized_shape, weight, bias, module.eps).to(result_dtype)

    return run
