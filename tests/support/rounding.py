"""Comparison of numbers up to a stated number of roundings, for results of another order, processor or program.

Sums, products and exponentials differ in their last bits from one processor to the next, and so do all results made of
them. A test that compares with a record therefore says how many roundings apart the two may be, and why: never a number
that happened to be enough on one machine.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode


def unit(dtype: torch.dtype) -> float:
    """The largest relative error of one rounding: 2⁻²⁴ in float32, 2⁻⁸ in bfloat16."""
    return torch.finfo(dtype).eps / 2


def apart(ours: Tensor, expected: Tensor, *, of: Literal["each", "largest"] = "largest") -> float:
    """The most roundings, in the type of `expected`, that two tensors are apart.

    of: what is rounded. "each": every number itself, for what is made of few products and quotients. "largest": the
    largest number in size, for sums whose terms cancel, so that small results carry the rounding of large terms.
    """
    assert ours.shape == expected.shape, f"{tuple(ours.shape)} is not {tuple(expected.shape)}"
    exact = expected.detach().double()
    size = exact.abs() if of == "each" else exact.abs().max()
    off = (ours.detach().double() - exact).abs()
    if not bool(off.isfinite().all()):
        return float("inf")
    rounding = (size * unit(expected.dtype)).clamp_min(torch.finfo(torch.float64).tiny)
    return float((off / rounding).max())


def within(
    ours: Tensor, expected: Tensor, *, roundings: float, of: Literal["each", "largest"] = "largest", name: str = ""
) -> None:
    """Fails if two tensors are further apart than so many roundings in the type of `expected`; see `apart`."""
    worst = apart(ours, expected, of=of)
    print(f"\n{name or 'result'}: {worst:.1f} roundings apart, {roundings:g} allowed")  # shown by pytest -s
    assert worst <= roundings, f"{name or 'result'}: {worst:.1f} roundings apart, at most {roundings:g} are allowed"


class RoundedOnce(TorchFunctionMode):
    """While it is on, exponentials, powers, sines and cosines of float32 numbers are worked out in float64 and rounded
    once, which comes out alike on every processor. The libraries' own are a rounding or two away, each its own way."""

    _functions = frozenset(
        {torch.exp, torch.sin, torch.cos, torch.pow, Tensor.exp, Tensor.sin, Tensor.cos, Tensor.pow}
        | {Tensor.__pow__, Tensor.__rpow__}
    )

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        tensors = [arg for arg in args if isinstance(arg, Tensor)]
        if func not in self._functions or any(tensor.dtype != torch.float32 for tensor in tensors):
            return func(*args, **(kwargs or {}))
        wide = (arg.double() if isinstance(arg, Tensor) else arg for arg in args)
        return func(*wide, **(kwargs or {})).float()
