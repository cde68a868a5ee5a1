"""How an adapter changes a layer's weight: LoRA, DoRA, LoHa, LoKr and OFT as formulas of the tensors in a file.

Tensors have the names of kohya's and LyCORIS' files, which exist for all kinds; diffusers' names are converted to them.
LoRA: Hu et al., arXiv 2106.09685. rsLoRA: Kalajdzievski, arXiv 2312.03732. DoRA: Liu et al., arXiv 2402.09353. LoHa and
LoKr: Yeh et al., arXiv 2309.14859. OFT: Qiu et al., arXiv 2306.07280, as peft computes it (arXiv 2506.19847).
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

Kind = Literal["lora", "loha", "lokr", "oft"]

LEAVES: dict[Kind, tuple[str, ...]] = {
    "lora": ("lora_down.weight", "lora_up.weight", "lora_mid.weight"),
    "loha": ("hada_w1_a", "hada_w1_b", "hada_w2_a", "hada_w2_b", "hada_t1", "hada_t2"),
    "lokr": ("lokr_w1", "lokr_w1_a", "lokr_w1_b", "lokr_w2", "lokr_w2_a", "lokr_w2_b", "lokr_t2"),
    "oft": ("oft_R.weight",),
}
"""The tensors of each kind; a module need not have all of them."""
MAGNITUDE = "dora_scale"
"""DoRA's trained norm of each row of the weight: (out, 1, …), or in old LyCORIS files of each column, (1, in, …)."""


@dataclass(frozen=True)
class AdapterModule:
    """The adapter of one layer.

    tensors: by the names in LEAVES, and MAGNITUDE for a DoRA. alpha: strength times the rank; None is the rank, scale
    1. rank_stabilized: alpha is divided by √rank (rsLoRA) instead of by the rank. rows: (first, end) if the tensors are
    those of a fused layer, of which this layer is a range of rows; None is all rows.
    """

    kind: Kind
    tensors: Mapping[str, Tensor]
    alpha: float | None = None
    rank_stabilized: bool = False
    rows: tuple[int, int] | None = None

    @cached_property
    def rank(self) -> int:
        """The inner dimension; 1 for a LoKr with two full factors, which has none; of an OFT the size of its blocks."""
        match self.kind:
            case "lora":
                return self.tensors["lora_down.weight"].shape[0]
            case "loha":
                return self.tensors["hada_w1_b"].shape[0]
            case "lokr":
                return next((t.shape[0] for name, t in self.tensors.items() if name in ("lokr_w1_b", "lokr_w2_b")), 1)
            case "oft":
                return (1 + math.isqrt(1 + 8 * self.tensors["oft_R.weight"].shape[1])) // 2

    @property
    def scale(self) -> float:
        """The factor of the product of the tensors.

        1 for a LoKr with two full factors, for any alpha, as in LyCORIS and ComfyUI.
        """
        if self.alpha is None or {"lokr_w1", "lokr_w2"} <= self.tensors.keys():
            return 1.0
        return self.alpha / (math.sqrt(self.rank) if self.rank_stabilized else self.rank)

    @property
    def plain_alpha(self) -> float:
        """The alpha that gives this scale when divided by the rank, as programs do with kohya's files."""
        return self.scale * self.rank if self.rank_stabilized or self.alpha is None else self.alpha

    @property
    def is_dora(self) -> bool:
        """Whether there is a tensor of magnitudes."""
        return MAGNITUDE in self.tensors

    @property
    def needs_weight(self) -> bool:
        """Whether the change depends on the weight, of a DoRA and an OFT."""
        return self.is_dora or self.kind == "oft"

    @property
    def parameters(self) -> int:
        """The number of parameters."""
        return sum(tensor.numel() for tensor in self.tensors.values())

    def to(self, dtype: torch.dtype) -> AdapterModule:
        """The same with tensors of another dtype."""
        return replace(self, tensors={name: tensor.to(dtype) for name, tensor in self.tensors.items()})

    def fits(self, shape: tuple[int, ...]) -> bool:
        """Whether it fits a weight of this shape; a pointwise convolution is equivalent to a matrix."""
        if self.kind == "oft":
            upper = self.tensors["oft_R.weight"]
            if upper.ndim != 2:
                return False
            blocks, numbers = upper.shape
            return (blocks * self.rank, self.rank * (self.rank - 1)) == (math.prod(shape[1:]), 2 * numbers)
        try:
            change = self._product_on_meta(shape)
        except (RuntimeError, KeyError, IndexError, ValueError):
            return False
        return _drop_pointwise_axes(change) == _drop_pointwise_axes(shape)

    def difference(self, shape: tuple[int, ...]) -> Tensor:
        """scale · product of the factors, float32, in the weight's shape (out, in) or (out, in, k, k).

        For a DoRA the change before the rows are rescaled. Not for an OFT.
        """
        product = _product(self.kind, {n: t.float() for n, t in self.tensors.items()}, shape)
        return self.scale * product[slice(*(self.rows or (None,)))].reshape(shape)

    def merge_into(self, weight: Tensor, strength: float = 1.0) -> Tensor:
        """The weight with the adapter merged, float32, of the same shape.

        strength: 0 gives the weight, 1 the trained result; other values interpolate or extrapolate linearly, for a DoRA
        too, as in ComfyUI and LyCORIS.
        """
        base = weight.float()
        if self.kind == "oft":
            return base + strength * (_rotate_inputs(base, self.tensors["oft_R.weight"].float()) - base)
        change = self.difference(tuple(weight.shape))
        if self.is_dora:
            merged = base + change
            change = _rescale_rows(merged, self.tensors[MAGNITUDE].float()) - base
        return base + strength * change

    def _product_on_meta(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        tensors = {name: torch.empty(t.shape, device="meta") for name, t in self.tensors.items()}
        product = _product(self.kind, tensors, shape)[slice(*(self.rows or (None,)))]
        if self.is_dora and _axis(tensors[MAGNITUDE], shape) is None:
            raise ValueError("magnitudes of another number of rows")
        return tuple(product.shape)


def _rotate_inputs(weight: Tensor, upper: Tensor) -> Tensor:
    """W · blockdiag(R)ᵀ with R = I + 2Q + 2Q² + 2Q³ + Q⁴, peft's series of the Cayley transform of a skew matrix Q.

    upper: (blocks, b (b − 1) / 2), the numbers above the diagonal of each Q, by row.
    """
    size = (1 + math.isqrt(1 + 8 * upper.shape[1])) // 2
    skew = upper.new_zeros(len(upper), size, size)
    rows, columns = torch.triu_indices(size, size, 1)
    skew[:, rows, columns] = upper
    skew = skew - skew.transpose(1, 2)
    square = skew @ skew
    cube = square @ skew
    rotation = torch.eye(size, device=upper.device) + 2 * (skew + square + cube) + cube @ skew
    return torch.einsum("orc,rkc->ork", weight.reshape(len(weight), -1, size), rotation).reshape(weight.shape)


def require_finite(layer: object, change: Tensor) -> None:
    """Raises WeightsError E1403 if a layer's change, or changed weight, is not finite."""
    if not torch.isfinite(change).all():
        raise WeightsError(
            f"{layer}: the adapted weight has values that are not finite; the adapter's alpha or factors are too "
            "large, or a row of a DoRA has norm 0; use another copy of the adapter",
            code="E1403",
        )


def row_lengths(weight: Tensor, axis: int = 0) -> Tensor:
    """The Euclidean norm of each row (axis 0) or column (axis 1), with size 1 in every other axis."""
    others = [number for number in range(weight.ndim) if number != axis]
    lengths: Tensor = torch.linalg.vector_norm(weight, dim=others, keepdim=True)
    return lengths


def _rescale_rows(weight: Tensor, lengths: Tensor) -> Tensor:
    """The weight with rows, or columns, rescaled to these norms."""
    axis = _axis(lengths, tuple(weight.shape))
    assert axis is not None
    current = row_lengths(weight, axis)
    return weight * (lengths.reshape(current.shape) / current)


def _axis(lengths: Tensor, shape: tuple[int, ...]) -> int | None:
    """The axis of a weight that the lengths belong to, or None."""
    if lengths.numel() == shape[0] and lengths.shape[0] == shape[0]:
        return 0
    return 1 if lengths.numel() == shape[1] and lengths.ndim > 1 and lengths.shape[0] == 1 else None


def _drop_pointwise_axes(shape: tuple[int, ...]) -> tuple[int, ...]:
    """A shape without the kernel axes of a pointwise convolution."""
    return shape[:2] if all(side == 1 for side in shape[2:]) else shape


def _product(kind: Kind, tensors: Mapping[str, Tensor], shape: tuple[int, ...]) -> Tensor:
    """The product of the factors, (out, in, …), without the scale. shape: of the weight; it determines a convolution's
    kernel if the factors do not."""
    match kind:
        case "lora":
            return _low_rank(tensors)
        case "loha":
            return _pair(tensors, "1", shape) * _pair(tensors, "2", shape)
        case "lokr":
            return _kronecker(tensors, shape)
        case "oft":
            raise ValueError("an OFT has no product, it rotates a weight")


def _low_rank(tensors: Mapping[str, Tensor]) -> Tensor:
    """up · down, with a core between them (Tucker) if the file has one."""
    down, up = tensors["lora_down.weight"], tensors["lora_up.weight"].flatten(1)
    core = tensors.get("lora_mid.weight")
    if core is not None:
        return torch.einsum("abhw,oa,bi->oihw", core, up, down.flatten(1))
    return (up @ down.flatten(1)).reshape(up.shape[0], *down.shape[1:])


def _pair(tensors: Mapping[str, Tensor], number: str, shape: tuple[int, ...]) -> Tensor:
    """One of the two products that LoHa multiplies element-wise."""
    first, second = tensors[f"hada_w{number}_a"], tensors[f"hada_w{number}_b"]
    core = tensors.get(f"hada_t{number}")
    if core is not None:
        return torch.einsum("abhw,ao,bi->oihw", core, first, second)
    return _unfold(first @ second, shape)


def _kronecker(tensors: Mapping[str, Tensor], shape: tuple[int, ...]) -> Tensor:
    """The Kronecker product of a small matrix and a block, each given in full or by two factors."""
    left = tensors["lokr_w1"] if "lokr_w1" in tensors else tensors["lokr_w1_a"] @ tensors["lokr_w1_b"]
    core = tensors.get("lokr_t2")
    if core is not None:
        right = torch.einsum("abhw,ao,bi->oihw", core, tensors["lokr_w2_a"], tensors["lokr_w2_b"]).contiguous()
    elif "lokr_w2" in tensors:
        right = tensors["lokr_w2"]
    else:
        right = tensors["lokr_w2_a"] @ tensors["lokr_w2_b"]
        block = (right.shape[0], shape[1] // left.shape[1], *shape[2:])
        right = _unfold(right, block)
    return torch.kron(left.reshape(*left.shape, *(1,) * (right.ndim - 2)), right)


def _unfold(matrix: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Reshapes a matrix (out, in · k · k) to a convolution's weight, if the weight is one."""
    return matrix.reshape(matrix.shape[0], shape[1], *shape[2:]) if math.prod(shape[2:]) > 1 else matrix
