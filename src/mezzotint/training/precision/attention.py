"""Attention computed by something else than torch's own kernels: in slices, or by xformers. Set once, when a model is
made ready."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

from torch import nn

from mezzotint.errors import RecipeError


def set_up(denoiser: nn.Module, attention: str) -> None:
    """Prepares a denoiser for `model.attention`; kernels of torch are chosen step by step instead (`attending`).

    `slice` computes half of the heads at a time, as diffusers' "auto" does. Raises RecipeError: E1060 for a denoiser or
    machine that cannot, E1062 without the package.
    """
    match attention:
        case "slice":
            _slice(denoiser)
        case "xformers":
            require_package(attention)
            _hand_to_xformers(denoiser)


def require_package(attention: str) -> None:
    """Raises RecipeError E1062 for `xformers` where that is not installed."""
    if attention == "xformers" and find_spec("xformers") is None:
        raise RecipeError(
            "model.attention is xformers, and that package is not installed; install mezzotint[xformers] in the "
            "release that belongs to this torch, or write model.attention=auto, which computes the same",
            code="E1062",
        )


def _slice(denoiser: nn.Module) -> None:
    layers: list[Any] = [layer for layer in denoiser.modules() if hasattr(layer, "sliceable_head_dim")]
    if not layers:
        raise RecipeError(
            "model.attention is slice, and this model's attention cannot be sliced; write model.attention=auto",
            code="E1060",
        )
    for layer in layers:
        layer.set_attention_slice(max(1, layer.sliceable_head_dim // 2))


def _hand_to_xformers(denoiser: nn.Module) -> None:
    try:
        denoiser.enable_xformers_memory_efficient_attention()  # type: ignore[operator]
    except (AttributeError, ValueError, RuntimeError, ImportError, NotImplementedError) as error:
        raise RecipeError(
            f"model.attention is xformers, and it cannot compute this model's attention here ({error}); write "
            "model.attention=auto",
            code="E1060",
        ) from error
