"""Attention implementations: sliced or xformers, set once when a model is prepared; or one torch kernel, selected at
each step."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any, Literal

import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from mezzotint.errors import RecipeError

Attention = Literal["auto", "flash", "efficient", "cudnn", "math", "slice", "xformers"]
_KERNELS = {
    "flash": SDPBackend.FLASH_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
    "cudnn": SDPBackend.CUDNN_ATTENTION,
    "math": SDPBackend.MATH,
}


@contextmanager
def use_attention(kernel: Attention, device: torch.device) -> Iterator[None]:
    """Context manager: attention uses only one torch kernel. `auto` leaves the choice to torch; `slice` and `xformers`
    were set up before. Raises RecipeError E1060 if the kernel cannot compute this attention."""
    if kernel not in _KERNELS:
        yield
        return
    try:
        with sdpa_kernel(_KERNELS[kernel]):
            yield
    except RuntimeError as error:
        if "scaled_dot_product_attention" not in str(error) and "No available kernel" not in str(error):
            raise
        raise RecipeError(
            f"model.attention is {kernel}, but that kernel cannot compute this model's attention on {device.type} "
            "in this precision; set model.attention=auto",
            code="E1060",
        ) from error


def set_up(denoiser: nn.Module, attention: str) -> None:
    """Prepares a denoiser for `model.attention`; torch kernels are selected at each step instead (`attending`).

    `slice` computes half of the heads at a time, as diffusers' "auto" does. Raises RecipeError: E1060 if the denoiser
    or the machine does not support it, E1062 without the package.
    """
    match attention:
        case "slice":
            _slice(denoiser)
        case "xformers":
            require_package(attention)
            _enable_xformers(denoiser)


def require_package(attention: str) -> None:
    """Raises RecipeError E1062 for `xformers` if it is not installed."""
    if attention == "xformers" and find_spec("xformers") is None:
        raise RecipeError(
            "model.attention is xformers, but that package is not installed; install mezzotint[xformers] in the "
            "release for this torch version, or set model.attention=auto, which computes the same",
            code="E1062",
        )


def _slice(denoiser: nn.Module) -> None:
    layers: list[Any] = [layer for layer in denoiser.modules() if hasattr(layer, "sliceable_head_dim")]
    if not layers:
        raise RecipeError(
            "model.attention is slice, but this model's attention cannot be sliced; set model.attention=auto",
            code="E1060",
        )
    for layer in layers:
        layer.set_attention_slice(max(1, layer.sliceable_head_dim // 2))


def _enable_xformers(denoiser: nn.Module) -> None:
    try:
        denoiser.enable_xformers_memory_efficient_attention()  # type: ignore[operator]
    except (AttributeError, ValueError, RuntimeError, ImportError, NotImplementedError) as error:
        raise RecipeError(
            f"model.attention is xformers, but it cannot compute this model's attention on this machine ({error}); set "
            "model.attention=auto",
            code="E1060",
        ) from error
