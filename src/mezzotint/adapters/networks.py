"""Adapters in training: attached to networks with peft, with initial values drawn by address.

Needs the extra `adapters` (peft), which is imported on use.
"""

from __future__ import annotations

import importlib.util
import math
import re
import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor, nn

from mezzotint import draws
from mezzotint.adapters.dropout import AddressedDropout, AddressedMask, DropoutDraws
from mezzotint.adapters.modules import MAGNITUDE, AdapterModule, Kind, row_lengths
from mezzotint.diffusion import noise
from mezzotint.errors import WeightsError
from mezzotint.settings.sections.adapter import AdapterSettings

if TYPE_CHECKING:
    from peft import PeftConfig

Method = Literal["lora", "rslora", "dora", "loha", "lokr", "oft"]
Init = Literal["kaiming", "gaussian"]
Factors = Mapping[tuple[str, str], Tensor]
"""Adapter tensors by path and leaf."""
_NAME = "default"
_LEAVES = {
    "lora_A": "lora_down.weight",
    "lora_B": "lora_up.weight",
    "lora_magnitude_vector": MAGNITUDE,
    "oft_R": "oft_R.weight",
    **{
        leaf: leaf
        for leaf in (
            "hada_w1_a", "hada_w1_b", "hada_w2_a", "hada_w2_b", "hada_t1", "hada_t2",
            "lokr_w1", "lokr_w1_a", "lokr_w1_b", "lokr_w2", "lokr_w2_a", "lokr_w2_b", "lokr_t2",
        )
    },
}  # fmt: skip
"""The leaf in files by peft's tensor name."""
ALL_LEAVES = tuple(_LEAVES.values())
FACTORS = tuple(leaf for leaf in ALL_LEAVES if leaf != MAGNITUDE)
"""The leaves whose product is the change of a weight."""


@dataclass(frozen=True, slots=True)
class AdapterShape:
    """The adapters to attach to the layers of one network.

    layers: by path, as in files, in any order. rank: at least 1; of an OFT the size of its blocks, or the nearest
    divisor of a layer's inputs. alpha: strength times the rank; None is the rank.
    ranks, alphas: exceptions for single layers, by path. factor: of a LoKr, how weights are split; −1 as evenly as
    possible. decompose_both: of a LoKr, whether the smaller factor is a product too if the rank is below half of its
    larger side. forms: of a LoHa or LoKr, layers whose tensors have given shapes, such as those of a file: by path, the
    shape of each leaf; rank, factor and decompose_both do not affect them.
    """

    method: Method
    layers: Sequence[str]
    rank: int = 4
    alpha: float | None = None
    ranks: Mapping[str, int] = field(default_factory=dict)
    alphas: Mapping[str, float] = field(default_factory=dict)
    factor: int = -1
    decompose_both: bool = False
    forms: Mapping[str, Mapping[str, tuple[int, ...]]] = field(default_factory=dict)


def without(shape: AdapterShape, paths: Collection[str]) -> AdapterShape:
    """The same for fewer layers. paths: those without an adapter."""
    return replace(
        shape,
        layers=[path for path in shape.layers if path not in paths],
        ranks={path: rank for path, rank in shape.ranks.items() if path not in paths},
        alphas={path: alpha for path, alpha in shape.alphas.items() if path not in paths},
        forms={path: form for path, form in shape.forms.items() if path not in paths},
    )


class Trained(NamedTuple):
    """A parameter of an adapter. path: of its layer, as in files. leaf: its name in kohya's layout."""

    path: str
    leaf: str
    parameter: nn.Parameter


def require_peft() -> None:
    """Raises WeightsError E1438 if peft is not installed."""
    if importlib.util.find_spec("peft") is None:
        raise WeightsError(
            'adapters need the package peft; install it with `pip install "mezzotint[adapters]"`', code="E1438"
        )


def attach(network: nn.Module, shape: AdapterShape) -> None:
    """Attaches an adapter to each layer and freezes everything else. One factor is 0, so the output does not change.

    The other factor has peft's values, drawn from torch's generator, until `set_initial` or `load`. Raises WeightsError
    E1438, E1439.
    """
    require_peft()
    from peft import inject_adapter_in_model
    from peft.tuners.tuners_utils import BaseTunerLayer

    network.requires_grad_(False)
    existing = {name for name, _ in network.named_modules()}
    paths = [module_path(path, existing) for path in shape.layers]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Invalid `oft_block_size`")  # see AdapterShape
        inject_adapter_in_model(_config(shape, paths), network, _NAME)
    if shape.method in ("loha", "lokr"):  # whose layers draw random numbers in training, even without dropout
        modules: dict[str, nn.Module] = dict(network.named_modules())
        for name, module in modules.items():
            if isinstance(module, BaseTunerLayer):
                _set_form(module, shape.forms.get(_file_path(name, network)))
                module.eval()
                vars(module)["train"] = lambda mode=True, layer=module: layer
    for _, _, parameter in _named_parameters(network):  # peft uses the dtype of the layer, which may have low precision
        parameter.data = parameter.data.float()


def set_dropout(network: nn.Module, settings: AdapterSettings, addresses: DropoutDraws) -> None:
    """Adds the dropouts of the settings to every adapter of a network: before the first factor, of ranks between the
    factors, of the result."""
    for name, module in list(network.named_modules()):
        path, _, leaf = name.rpartition(".")
        path = _file_path(path, network)
        if leaf == "lora_dropout" and settings.dropout:
            cast(nn.ModuleDict, module)[_NAME] = AddressedDropout(settings.dropout, path, addresses)
        if leaf == "lora_A" and (chance := settings.rank_dropout):
            mask = AddressedMask(chance, 1.0 / (1.0 - chance), f"{path} ranks", addresses, by_channel=True)
            cast(nn.ModuleDict, module)[_NAME].register_forward_hook(mask)
        if leaf == "lora_B" and settings.module_dropout:
            mask = AddressedMask(settings.module_dropout, 1.0, f"{path} module", addresses, by_channel=False)
            cast(nn.ModuleDict, module)[_NAME].register_forward_hook(mask)


@contextmanager
def switched_off(network: nn.Module) -> Iterator[None]:
    """Context in which a network computes without its adapters, bit for bit as before they were attached. Gradients
    must be disabled in it."""
    from peft.tuners.tuners_utils import BaseTunerLayer

    layers = [module for module in network.modules() if isinstance(module, BaseTunerLayer)]
    try:
        for layer in layers:
            layer.enable_adapters(False)
        yield
    finally:
        for layer in layers:
            layer.enable_adapters(True)


def adapter_parameters(network: nn.Module) -> list[Trained]:
    """The parameters of a network's adapters, sorted by layer and leaf."""
    return sorted(_named_parameters(network), key=lambda trained: trained[:2])


def set_initial(network: nn.Module, component: str, seed: int, init: Init = "kaiming") -> None:
    """Sets the initial values, each drawn at an address of (seed, component, path, leaf).

    They do not depend on the machine, the order of layers or other draws. LoRA: `kaiming`, uniform in ±1/√(fan in) (as
    in peft and kohya); `gaussian`, deviation 1/rank (diffusers' scripts); the other factor is 0. LoHa and LoKr: normal
    with deviations 1 and 0.1, w2_a of a LoHa and w2 (or w2_b) of a LoKr 0, as in LyCORIS. w1_a of a LoKr has deviation
    1/√rank, which gives w1_a · w1_b the deviation 1 of a full w1. The magnitude of a DoRA is the norm of the weight's
    rows. An OFT starts at 0, without a rotation.
    """
    layers = _base_layers(network)
    for path, leaf, parameter in adapter_parameters(network):
        key = draws.key(seed, "adapter", f"{component}.{path}", leaf)
        with torch.no_grad():
            parameter.copy_(
                _initial(leaf, parameter, key, init, layers[path]).to(parameter.dtype).reshape(parameter.shape)
            )


def load(network: nn.Module, modules: Mapping[str, AdapterModule]) -> None:
    """Loads values, by path and leaf. Raises WeightsError E1440 if layers, ranks or kinds differ."""
    values = {(path, leaf): tensor for path, module in modules.items() for leaf, tensor in module.tensors.items()}
    parameters = {(path, leaf): parameter for path, leaf, parameter in adapter_parameters(network)}
    other = values.keys() ^ parameters.keys()
    other |= {key for key in values.keys() & parameters.keys() if values[key].numel() != parameters[key].numel()}
    if other:
        path, leaf = min(other)
        raise WeightsError(
            f"the given adapter differs from the requested one in {len(other)} tensors, the first {path}.{leaf}; "
            "set the same kind, rank and layers as in the file",
            code="E1440",
        )
    with torch.no_grad():
        for key, parameter in parameters.items():
            parameter.copy_(values[key].reshape(parameter.shape))


def shape_of(modules: Mapping[str, AdapterModule]) -> AdapterShape:
    """The adapters to attach for loading these modules, which must be trainable and have one method."""
    (method,) = {method_of(module) for module in modules.values()}
    ranks = {path: module.rank for path, module in modules.items()}
    alphas = {path: float(m.rank if m.alpha is None else m.alpha) for path, m in modules.items()}
    forms = {}
    if method == "oft":
        return AdapterShape(method, list(modules), max(ranks.values()))
    if method in ("loha", "lokr"):
        forms = {path: {leaf: tuple(t.shape) for leaf, t in m.tensors.items()} for path, m in modules.items()}
        # two full factors have scale 1, for any alpha in the file
        alphas |= {path: float(ranks[path]) for path, form in forms.items() if {"lokr_w1", "lokr_w2"} <= form.keys()}
    return AdapterShape(method, list(modules), max(ranks.values()), None, ranks, alphas, forms=forms)


def reason_untrainable(module: AdapterModule) -> str:
    """The kind of an adapter that peft cannot train; empty if it can be trained."""
    if module.rows is not None:
        return "a LoKr of a fused layer"
    if "lora_mid.weight" in module.tensors:
        return "a convolution's LoRA with three factors (lora_mid)"
    if module.is_dora and module.kind != "lora":
        return f"a {'LoHa' if module.kind == 'loha' else 'LoKr'} with DoRA magnitudes (dora_scale)"
    if module.is_dora and module.tensors[MAGNITUDE].shape[0] == 1 < module.tensors["lora_up.weight"].shape[0]:
        return "a DoRA with magnitudes of columns instead of rows"
    return ""


def method_of(module: AdapterModule) -> Method:
    """The method with which an adapter of a file is trained."""
    if module.kind != "lora":
        return module.kind
    return "dora" if module.is_dora else "rslora" if module.rank_stabilized else "lora"


def as_module(shape: AdapterShape, path: str, tensors: Mapping[str, Tensor]) -> AdapterModule:
    """The adapter of a layer as in files. tensors: its parameters by leaf, shared without a copy where possible."""
    leaves = dict(tensors)
    rank = shape.ranks.get(path, shape.rank)
    alpha = float(shape.alphas.get(path, rank if shape.alpha is None else shape.alpha))
    if shape.method == "oft":
        return AdapterModule("oft", leaves)
    kind: Kind = "lora" if shape.method in ("lora", "rslora", "dora") else shape.method  # type: ignore[assignment]
    if MAGNITUDE in leaves:
        up = leaves["lora_up.weight"]
        leaves[MAGNITUDE] = leaves[MAGNITUDE].reshape(up.shape[0], *(1,) * (up.ndim - 1))
    if {"lokr_w1", "lokr_w2"} <= leaves.keys():  # programs read such a module with scale 1
        leaves["lokr_w1"] = leaves["lokr_w1"] * (alpha / rank)
    return AdapterModule(kind, leaves, alpha, shape.method == "rslora")


def init_pissa(network: nn.Module, shape: AdapterShape) -> Factors:
    """Initializes with the largest singular vectors of each weight and subtracts them from it: PiSSA (Meng et al.,
    arXiv:2404.02948). The model's output does not change. Returns the factors, by path and leaf."""
    factors: dict[tuple[str, str], Tensor] = {}
    pairs = {(path, leaf): parameter for path, leaf, parameter in adapter_parameters(network)}
    for path, layer in _base_layers(network).items():
        weight = layer.weight
        down, up = (pairs[path, leaf] for leaf in ("lora_down.weight", "lora_up.weight"))
        scale = as_module(shape, path, {"lora_down.weight": down, "lora_up.weight": up}).scale
        with torch.no_grad():
            left, values, right = torch.linalg.svd(weight.float().flatten(1), full_matrices=False)
            root = (values[: len(down)] / scale).sqrt()
            down[: len(root)].copy_((root[:, None] * right[: len(root)]).reshape(-1, *down.shape[1:]))
            up[:, : len(root)].copy_((left[:, : len(root)] * root).reshape(len(up), -1, *up.shape[2:]))
        factors |= {(path, "lora_down.weight"): down.detach().clone(), (path, "lora_up.weight"): up.detach().clone()}
    swap_factors(network, shape, {}, factors)
    return factors


def swap_factors(network: nn.Module, shape: AdapterShape, before: Factors, after: Factors) -> None:
    """Adds the products of some factors to the weights and subtracts those of others; equal factors change nothing. By
    path and leaf."""
    for path, layer in _base_layers(network).items():
        weight = layer.weight
        products = [_product_of(shape, path, factors, weight) for factors in (before, after)]
        if not torch.equal(*products):
            with torch.no_grad():
                weight.copy_(weight.float() + (products[0] - products[1]))


def _product_of(shape: AdapterShape, path: str, factors: Factors, weight: Tensor) -> Tensor:
    if not factors:
        return torch.zeros_like(weight, dtype=torch.float32)
    pair = {leaf: factors[path, leaf].to(weight.device) for leaf in ("lora_down.weight", "lora_up.weight")}
    return as_module(shape, path, pair).difference(tuple(weight.shape))


# --- peft -----------------------------------------------------------------------------------------------------------


def _config(shape: AdapterShape, paths: Sequence[str]) -> PeftConfig:
    import peft

    module_paths = dict(zip(shape.layers, paths, strict=True))
    options: dict[str, Any] = {
        "r": shape.rank,
        "target_modules": "|".join(re.escape(path) for path in paths),
        "rank_pattern": {f"^{re.escape(module_paths[path])}$": rank for path, rank in shape.ranks.items()},
        "alpha_pattern": {f"^{re.escape(module_paths[path])}$": alpha for path, alpha in _alphas(shape).items()},
    }
    alpha: Any = (
        shape.rank if shape.alpha is None else shape.alpha
    )  # annotated as int by peft, which accepts any number
    match shape.method:
        case "loha":
            return peft.LoHaConfig(alpha=alpha, **options)
        case "lokr":
            return peft.LoKrConfig(
                alpha=alpha, decompose_factor=shape.factor, decompose_both=shape.decompose_both, **options
            )
        case "oft":
            return peft.OFTConfig(r=0, oft_block_size=shape.rank, target_modules=options["target_modules"])
        case method:
            options |= {"use_dora": method == "dora", "use_rslora": method == "rslora"}
            return peft.LoraConfig(lora_alpha=alpha, **options)


def _set_form(layer: Any, form: Mapping[str, tuple[int, ...]] | None) -> None:
    """Replaces the tensors of a LoHa or LoKr layer with tensors of these shapes.

    peft computes with tensors of any shape, but creates them by one rule for all layers of a network.
    """
    if form is None:
        return
    tensors = [factors.pop(_NAME) for leaf in layer.adapter_layer_names if _NAME in (factors := getattr(layer, leaf))]
    for leaf, sizes in form.items():
        getattr(layer, leaf)[_NAME] = nn.Parameter(torch.zeros(sizes, device=tensors[0].device))


def _alphas(shape: AdapterShape) -> dict[str, float]:
    """Alphas of single layers; without an alpha they follow the rank."""
    receives_delayed_reports = {path: float(rank) for path, rank in shape.ranks.items()} if shape.alpha is None else {}
    return receives_delayed_reports | dict(shape.alphas)


def module_path(path: str, modules: Collection[str]) -> str:
    """The path of a layer in this network; encoders of newer transformers lack the level `text_model`. modules: paths
    of all its modules. Raises WeightsError E1439."""
    short = path.removeprefix("text_model.")
    if path not in modules and short not in modules:
        raise WeightsError(f"the network has no layer {path}", code="E1439")
    return path if path in modules else short


def file_weights(network: nn.Module) -> dict[str, nn.Parameter]:
    """The parameters of a network without adapters, by their names in files."""
    return {_file_path(name, network): parameter for name, parameter in network.named_parameters()}


def _file_path(path: str, network: nn.Module) -> str:
    """The path in files of a layer, or a parameter, of this network."""
    flat_encoder = type(network).__name__ == "CLIPTextModel" and not path.startswith("text_model.")
    return f"text_model.{path}" if flat_encoder else path


def _named_parameters(network: nn.Module) -> Iterator[Trained]:
    for name, parameter in network.named_parameters():
        pieces = name.split(".")
        for number, piece in enumerate(pieces):
            if piece in _LEAVES and pieces[number + 1] == _NAME:
                yield Trained(_file_path(".".join(pieces[:number]), network), _LEAVES[piece], parameter)


def _base_layers(network: nn.Module) -> dict[str, Any]:
    """The base layers of adapters, by path in files. `weight` of a quantized layer is dequantized on each access."""
    ending = ".base_layer"
    return {
        _file_path(name.removesuffix(ending), network): module
        for name, module in network.named_modules()
        if name.endswith(ending)
    }


# --- initial values -------------------------------------------------------------------------------------------------


def _initial(leaf: str, parameter: Tensor, key: int, init: Init, layer: Any) -> Tensor:
    addresses = torch.from_numpy(np.array([key], dtype=np.uint64).view(np.int64))
    shape = tuple(parameter.shape)
    if leaf == MAGNITUDE:
        return row_lengths(layer.weight.detach().float())
    if leaf in ("lora_up.weight", "hada_w2_a", "lokr_w2", "lokr_w2_b", "oft_R.weight"):
        return torch.zeros(shape)
    if leaf == "lora_down.weight" and init == "kaiming":
        return (2 * noise.uniform(addresses, shape)[0] - 1) / math.sqrt(parameter[0].numel())
    deviation = 0.1 if leaf.endswith(("w1_a", "t1", "t2")) else 1.0
    if leaf == "lora_down.weight":
        deviation = 1 / shape[0]
    elif leaf == "lokr_w1_a":
        deviation = shape[1] ** -0.5
    return noise.normal(addresses, shape)[0] * deviation
