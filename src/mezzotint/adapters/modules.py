"""What an adapter makes of one layer's weight: LoRA, DoRA, LoHa and LoKr as formulas of the tensors in a file.

Tensors carry the names of kohya's and LyCORIS' files, which all kinds have; files in diffusers' layout are read into
them. LoRA: Hu et al., arXiv 2106.09685. rsLoRA: Kalajdzievski, arXiv 2312.03732. DoRA: Liu et al., arXiv 2402.09353.
LoHa and LoKr: Yeh et al., arXiv 2309.14859.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import torch
from torch import Tensor

from mezzotint.errors import WeightsError

Kind = Literal["lora", "loha", "lokr"]

LEAVES: dict[Kind, tuple[str, ...]] = {
    "lora": ("lora_down.weight", "lora_up.weight", "lora_mid.weight"),
    "loha": ("hada_w1_a", "hada_w1_b", "hada_w2_a", "hada_w2_b", "hada_t1", "hada_t2"),
    "lokr": ("lokr_w1", "lokr_w1_a", "lokr_w1_b", "lokr_w2", "lokr_w2_a", "lokr_w2_b", "lokr_t2"),
}
"""The tensors of each kind; not every module of a kind has all of its own."""
MAGNITUDE = "dora_scale"
"""The length of each row of the weight that DoRA trains: (out, 1, …), or (1, in, …), one for each column, in old files
of LyCORIS."""


@dataclass(frozen=True)
class AdapterModule:
    """The adapter of one layer.

    tensors: by the names of LEAVES, and MAGNITUDE where it is a DoRA. alpha: strength in multiples of the rank; None is
    the rank itself, scale 1. rank_stabilized: alpha is divided by √rank (rsLoRA) instead of by the rank. rows: (first,
    end) where the tensors are those of a fused layer and this layer is some of its rows; None is all rows.
    """

    kind: Kind
    tensors: Mapping[str, Tensor]
    alpha: float | None = None
    rank_stabilized: bool = False
    rows: tuple[int, int] | None = None

    @cached_property
    def rank(self) -> int:
        """The inner dimension. A LoKr whose two factors are whole has none; it counts as 1."""
        match self.kind:
            case "lora":
                return self.tensors["lora_down.weight"].shape[0]
            case "loha":
                return self.tensors["hada_w1_b"].shape[0]
            case "lokr":
                return next((t.shape[0] for name, t in self.tensors.items() if name in ("lokr_w1_b", "lokr_w2_b")), 1)

    @property
    def scale(self) -> float:
        """What the product of the factors is multiplied by.

        1 for a LoKr of two whole factors, whatever alpha says: LyCORIS and ComfyUI read it so.
        """
        if self.alpha is None or {"lokr_w1", "lokr_w2"} <= self.tensors.keys():
            return 1.0
        return self.alpha / (math.sqrt(self.rank) if self.rank_stabilized else self.rank)

    @property
    def plain_alpha(self) -> float:
        """The alpha that gives this scale when it is divided by the rank, as every reader of kohya's files does."""
        return self.scale * self.rank if self.rank_stabilized or self.alpha is None else self.alpha

    @property
    def is_dora(self) -> bool:
        """Whether the length of the weight's rows is a tensor of its own."""
        return MAGNITUDE in self.tensors

    @property
    def parameters(self) -> int:
        """How many numbers it holds."""
        return sum(tensor.numel() for tensor in self.tensors.values())

    def to(self, dtype: torch.dtype) -> AdapterModule:
        """The same with tensors of another type."""
        return replace(self, tensors={name: tensor.to(dtype) for name, tensor in self.tensors.items()})

    def fits(self, shape: tuple[int, ...]) -> bool:
        """Whether it belongs to a weight of this shape; a pointwise convolution is as good as a matrix."""
        try:
            change = self._product_on_meta(shape)
        except (RuntimeError, KeyError, IndexError, ValueError):
            return False
        return _plain(change) == _plain(shape)

    def difference(self, shape: tuple[int, ...]) -> Tensor:
        """scale · product of the factors, float32, in the weight's shape (out, in) or (out, in, k, k).

        Of a DoRA only what it adds before the rows get their lengths.
        """
        product = _product(self.kind, {n: t.float() for n, t in self.tensors.items()}, shape)
        return self.scale * product[slice(*(self.rows or (None,)))].reshape(shape)

    def adapted(self, weight: Tensor, strength: float = 1.0) -> Tensor:
        """The weight with the adapter in it, float32, of the same shape.

        strength: 0 gives the weight itself, 1 what was trained; between, before and beyond along the straight line, of
        a DoRA too, as ComfyUI and LyCORIS do.
        """
        base = weight.float()
        change = self.difference(tuple(weight.shape))
        if self.is_dora:
            whole = base + change
            change = _with_lengths(whole, self.tensors[MAGNITUDE].float()) - base
        return base + strength * change

    def _product_on_meta(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        tensors = {name: torch.empty(t.shape, device="meta") for name, t in self.tensors.items()}
        product = _product(self.kind, tensors, shape)[slice(*(self.rows or (None,)))]
        if self.is_dora and _axis(tensors[MAGNITUDE], shape) is None:
            raise ValueError("lengths of other rows")
        return tuple(product.shape)


def require_finite(layer: object, change: Tensor) -> None:
    """Raises WeightsError E1403 for a change of a layer's weight, or a weight with one, that numbers cannot hold."""
    if not torch.isfinite(change).all():
        raise WeightsError(
            f"{layer}: what the adapter makes of it has numbers that are not finite; its alpha or its factors are too "
            "large, or a DoRA's row has no length; take another copy of the adapter",
            code="E1403",
        )


def row_lengths(weight: Tensor, axis: int = 0) -> Tensor:
    """The Euclidean length of each row (axis 0) or column (axis 1), with one place for each other axis."""
    others = [number for number in range(weight.ndim) if number != axis]
    lengths: Tensor = torch.linalg.vector_norm(weight, dim=others, keepdim=True)
    return lengths


def _with_lengths(weight: Tensor, lengths: Tensor) -> Tensor:
    """Rows, or columns, scaled to these lengths."""
    axis = _axis(lengths, tuple(weight.shape))
    assert axis is not None
    own = row_lengths(weight, axis)
    return weight * (lengths.reshape(own.shape) / own)


def _axis(lengths: Tensor, shape: tuple[int, ...]) -> int | None:
    """Which axis of a weight the lengths belong to; None when they belong to neither."""
    if lengths.numel() == shape[0] and lengths.shape[0] == shape[0]:
        return 0
    return 1 if lengths.numel() == shape[1] and lengths.ndim > 1 and lengths.shape[0] == 1 else None


def _plain(shape: tuple[int, ...]) -> tuple[int, ...]:
    """A shape without the sides of one pixel that a pointwise convolution has."""
    return shape[:2] if all(side == 1 for side in shape[2:]) else shape


def _product(kind: Kind, tensors: Mapping[str, Tensor], shape: tuple[int, ...]) -> Tensor:
    """The factors multiplied out, (out, in, …), without the scale. shape: of the weight; settles how a convolution's
    window is folded where the factors do not tell."""
    match kind:
        case "lora":
            return _low_rank(tensors)
        case "loha":
            return _pair(tensors, "1", shape) * _pair(tensors, "2", shape)
        case "lokr":
            return _kronecker(tensors, shape)


def _low_rank(tensors: Mapping[str, Tensor]) -> Tensor:
    """up · down, with a core between them (Tucker) where the file has one."""
    down, up = tensors["lora_down.weight"], tensors["lora_up.weight"].flatten(1)
    core = tensors.get("lora_mid.weight")
    if core is not None:
        return torch.einsum("abhw,oa,bi->oihw", core, up, down.flatten(1))
    return (up @ down.flatten(1)).reshape(up.shape[0], *down.shape[1:])


def _pair(tensors: Mapping[str, Tensor], number: str, shape: tuple[int, ...]) -> Tensor:
    """One of the two products whose elements LoHa multiplies."""
    first, second = tensors[f"hada_w{number}_a"], tensors[f"hada_w{number}_b"]
    core = tensors.get(f"hada_t{number}")
    if core is not None:
        return torch.einsum("abhw,ao,bi->oihw", core, first, second)
    return _unfolded(first @ second, shape)


def _kronecker(tensors: Mapping[str, Tensor], shape: tuple[int, ...]) -> Tensor:
    """The Kronecker product of a small matrix and a block, each whole or of two factors."""
    left = tensors["lokr_w1"] if "lokr_w1" in tensors else tensors["lokr_w1_a"] @ tensors["lokr_w1_b"]
    core = tensors.get("lokr_t2")
    if core is not None:
        right = torch.einsum("abhw,ao,bi->oihw", core, tensors["lokr_w2_a"], tensors["lokr_w2_b"]).contiguous()
    elif "lokr_w2" in tensors:
        right = tensors["lokr_w2"]
    else:
        right = tensors["lokr_w2_a"] @ tensors["lokr_w2_b"]
        block = (right.shape[0], shape[1] // left.shape[1], *shape[2:])
        right = _unfolded(right, block)
    return torch.kron(left.reshape(*left.shape, *(1,) * (right.ndim - 2)), right)


def _unfolded(matrix: Tensor, shape: tuple[int, ...]) -> Tensor:
    """A matrix (out, in · k · k) as a convolution's weight, when the weight is one."""
    return matrix.reshape(matrix.shape[0], shape[1], *shape[2:]) if math.prod(shape[2:]) > 1 else matrix
