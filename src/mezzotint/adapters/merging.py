"""Merging adapters into a model's weights, and several adapters into one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from mezzotint.adapters.files import Adapter
from mezzotint.adapters.modules import AdapterModule, require_finite
from mezzotint.adapters.names import LayerName
from mezzotint.adapters.networks import file_weights
from mezzotint.errors import WeightsError

Weighted = Sequence[tuple[Adapter, float]]
"""Adapters with their strengths; 1 is as trained, 0 has no effect, negative values invert the change."""


def merge_adapters(component: str, weights: Mapping[str, Tensor], adapters: Weighted) -> dict[str, Tensor]:
    """A component's weights with adapters merged: W + Σ strength · (adapted − W).

    component: of a model folder. weights: by the names in its files; some or all. Computed in float32, and cast once to
    each weight's dtype. Weights that no adapter changes are returned unchanged. Raises WeightsError E1416 if a sum
    overflows its dtype, E1403 if an adapted weight is not finite.
    """
    result = dict(weights)
    by_path = [(adapter.of(component), strength) for adapter, strength in adapters]
    for name, weight in weights.items():
        path = name.removesuffix(".weight")
        changes = [(modules[path], strength) for modules, strength in by_path if path in modules and strength]
        if not changes or not name.endswith(".weight"):
            continue
        base = weight.float()
        total = base + sum(
            (module.merge_into(weight, strength) - base for module, strength in changes), start=torch.zeros(())
        )
        result[name] = total.to(weight.dtype)
        if torch.isfinite(result[name]).all() or not torch.isfinite(base).all():
            continue
        require_finite(f"{component}.{path}", total)
        raise WeightsError(
            f"{component}.{name}: the merged weight reaches {float(total.abs().max()):.3g}, too large for "
            f"{str(weight.dtype).removeprefix('torch.')}; merge into fp32 or bf16, or use less strength",
            code="E1416",
        )
    return result


def merge_into(network: nn.Module, component: str, adapters: Weighted) -> None:
    """Merges adapters into the weights of a network, in place, see `merge_adapters`. component: of a model folder.
    Raises WeightsError E1403, E1416."""
    weights = file_weights(network)
    with torch.no_grad():
        for name, weight in merge_adapters(component, weights, adapters).items():
            if weight is not weights[name]:
                weights[name].copy_(weight)


def join_loras(adapters: Weighted) -> Adapter:
    """One LoRA exactly equal to several with their strengths; its rank is the sum of theirs.

    Raises WeightsError E1436 for adapters that cannot be concatenated: DoRA, LoHa, LoKr, OFT, convolutions with
    three factors.
    """
    layers: dict[LayerName, list[tuple[AdapterModule, float]]] = {}
    for adapter, strength in adapters:
        for layer, module in adapter.modules.items():
            if module.kind != "lora" or module.is_dora or "lora_mid.weight" in module.tensors:
                raise WeightsError(
                    f"{layer} is not a plain LoRA; only plain LoRAs can be joined without loss. Merge them into the "
                    "model, or `mezzotint extract` one from the merged model",
                    code="E1436",
                )
            layers.setdefault(layer, []).append((module, strength))
    return Adapter({layer: _concatenate(parts) for layer, parts in layers.items()})


def _concatenate(parts: Sequence[tuple[AdapterModule, float]]) -> AdapterModule:
    downs = [module.tensors["lora_down.weight"].float() for module, _ in parts]
    ups = [module.tensors["lora_up.weight"].float() * (module.scale * strength) for module, strength in parts]
    ups = [up.reshape(*up.shape[:2], *(1,) * (downs[0].ndim - 2)) for up in ups]
    downs = [down.reshape(down.shape[0], *downs[0].shape[1:]) for down in downs]
    return AdapterModule("lora", {"lora_down.weight": torch.cat(downs), "lora_up.weight": torch.cat(ups, dim=1)})


def scale_adapter(adapter: Adapter, strength: float) -> Adapter:
    """The adapter multiplied by a strength; exact for LoRA, LoHa and LoKr.

    Raises WeightsError E1436 for a DoRA or an OFT, whose change is not proportional to its factors.
    """
    modules = {}
    for layer, module in adapter.modules.items():
        if module.needs_weight:
            kind = "a DoRA" if module.is_dora else "an OFT"
            raise WeightsError(f"{layer} is {kind}, whose strength cannot be written into its file", code="E1436")
        if {"lokr_w1", "lokr_w2"} <= module.tensors.keys():  # programs ignore the alpha of such a module
            tensors = {**module.tensors, "lokr_w1": module.tensors["lokr_w1"] * strength}
            modules[layer] = replace(module, tensors=tensors)
        else:
            modules[layer] = replace(module, alpha=module.plain_alpha * strength, rank_stabilized=False)
    return replace(adapter, modules=modules)


def differences(adapter: Adapter, weights: Mapping[LayerName, Tensor]) -> Iterator[tuple[LayerName, Tensor]]:
    """adapted − W of each layer, float32. weights: of at least the layers that it changes."""
    for layer, module in adapter.modules.items():
        yield layer, module.merge_into(weights[layer]) - weights[layer].float()
