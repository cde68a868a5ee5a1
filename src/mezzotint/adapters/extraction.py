"""Adapters from singular value decompositions of weight differences: extraction from two models, and resizing.

The best approximation of a given rank keeps the largest singular values (Eckart and Young 1936). Each factor gets their
square roots, without clamping: a difference of that rank is reproduced up to rounding.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from mezzotint.adapters.files import Adapter
from mezzotint.adapters.modules import AdapterModule, require_finite
from mezzotint.adapters.names import LayerName


@dataclass(frozen=True, slots=True)
class Remainder:
    """The error of a layer's approximation. rank: of the approximation. norm: Frobenius norm of the difference. share:
    of that norm that is lost, 0 … 1."""

    layer: LayerName
    rank: int
    norm: float
    share: float


@dataclass(frozen=True, slots=True)
class RankRule:
    """How many singular values are kept: at most `rank`, limited further by at most one other rule.

    share: the fewest that lose at most this share of the difference's Frobenius norm. sv_ratio: those of at least the
    largest / sv_ratio. sv_cumulative: the fewest that reach this share of the sum of all. The last two are kohya's
    rules of the same names. convolutions: the limit for kernels larger than one pixel; None is `rank`.
    """

    rank: int
    share: float = 0.0
    convolutions: int | None = None
    sv_ratio: float | None = None
    sv_cumulative: float | None = None

    def choose(self, values: Tensor, shape: tuple[int, ...]) -> int:
        """The number of singular values to keep, at least 1. values: singular values, largest first. shape: of the
        weight."""
        has_kernel = len(shape) > 2 and any(side > 1 for side in shape[2:])
        limit = min(self.rank if self.convolutions is None or not has_kernel else self.convolutions, len(values))
        return max(1, min(limit, self._count_by_rule(values)))

    def _count_by_rule(self, values: Tensor) -> int:
        """The number that the other rule gives, without the limit."""
        if self.sv_ratio is not None:
            return int(((values >= values[0] / self.sv_ratio) & (values > 0)).sum())
        if self.sv_cumulative is not None:
            sums = values.cumsum(0)
            return int((sums < self.sv_cumulative * sums[-1]).sum()) + 1
        if self.share > 0:
            total = values.square().sum()
            left = (total - values.square().cumsum(0)).clamp(min=0).sqrt()  # after 1, 2, … of them
            return int((left > self.share * total.sqrt()).sum()) + 1
        return len(values)


def extract_lora(
    pairs: Iterable[tuple[LayerName, Tensor, Tensor]], rule: RankRule, *, threshold: float = 0.0
) -> tuple[Adapter, list[Remainder]]:
    """A LoRA of the difference between two models, and the error for each layer.

    pairs: layer, weight of the first model, weight of the second, (out, in) or (out, in, k, k). threshold: layers in
    which no value differs by more than this are skipped; 0 skips equal layers. Scale is 1.
    """
    modules: dict[LayerName, AdapterModule] = {}
    remainders = []
    for layer, base, tuned in pairs:
        difference = tuned.float() - base.float()
        if not difference.numel() or float(difference.abs().max()) <= threshold:
            continue
        modules[layer], remainder = approximate(layer, difference, rule)
        remainders.append(remainder)
    return Adapter(modules), remainders


def resize_adapter(
    adapter: Adapter, rule: RankRule, weights: Mapping[LayerName, Tensor], shapes: Mapping[LayerName, tuple[int, ...]]
) -> tuple[Adapter, list[Remainder]]:
    """The adapter with another rank, as a LoRA, and the error for each layer.

    weights: of the base, needed for DoRA and OFT layers; for others only shapes are used.
    """
    modules: dict[LayerName, AdapterModule] = {}
    remainders = []
    for layer, module in adapter.modules.items():
        if module.needs_weight:
            difference = module.merge_into(weights[layer]) - weights[layer].float()
        else:
            difference = module.difference(shapes[layer])
        modules[layer], remainder = approximate(layer, difference, rule)
        remainders.append(remainder)
    return Adapter(modules, adapter.metadata, adapter.layout), remainders


def approximate(layer: LayerName, difference: Tensor, rule: RankRule) -> tuple[AdapterModule, Remainder]:
    """The LoRA nearest to a difference of weights, float32, and its error. Raises WeightsError E1403 for a difference
    that is not finite."""
    require_finite(layer, difference)
    shape = tuple(difference.shape)
    left, values, right = torch.linalg.svd(difference.flatten(1), full_matrices=False)
    rank = rule.choose(values, shape)
    root = values[:rank].sqrt()
    up, down = left[:, :rank] * root, root[:, None] * right[:rank]
    tail = (1,) * (len(shape) - 2)
    tensors = {
        "lora_down.weight": down.reshape(rank, *shape[1:]).contiguous(),
        "lora_up.weight": up.reshape(shape[0], rank, *tail).contiguous(),
    }
    norm = float(values.square().sum().sqrt())
    residual = float(values[rank:].square().sum().sqrt())
    return AdapterModule("lora", tensors), Remainder(layer, rank, norm, residual / norm if norm else 0.0)
