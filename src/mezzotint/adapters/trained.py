"""The adapter that a run trains: its layers in each part, its parameters by name, and its file.

A parameter is named `part/layer.leaf`, such as `denoiser/mid_block.attentions.0.proj_in.lora_down.weight`, independent
of the library's names; checkpoints use these names.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TypeVar, get_args

import torch
from torch import Tensor, nn

from mezzotint import draws
from mezzotint.adapters import files, networks, targets
from mezzotint.adapters.dropout import DropoutDraws
from mezzotint.adapters.files import Adapter
from mezzotint.adapters.modules import AdapterModule
from mezzotint.adapters.names import LayerName, LayerNames
from mezzotint.adapters.networks import AdapterShape
from mezzotint.errors import WeightsError, did_you_mean, find_closest
from mezzotint.settings.sections.adapter import AdapterSettings
from mezzotint.settings.sections.model import ModelSettings
from mezzotint.weights.model_files import ModelFiles

V = TypeVar("V", int, float)
START = "start."
"""Prefix in checkpoints for factors that were subtracted from the weights. Every process has them in full, unlike
parameters, of which it may have only rows."""


@dataclass
class TrainedAdapter:
    """An adapter of a model. names: of the model's layers. folders: the component of each part that it changes. shapes:
    the adapters of each part. initial: values to start from, read from a file."""

    settings: AdapterSettings
    names: LayerNames
    folders: Mapping[str, str]
    shapes: Mapping[str, AdapterShape]
    initial: Adapter | None = None
    dropout: DropoutDraws = field(default_factory=DropoutDraws)
    numbers: dict[str, int] = field(default_factory=dict)
    """The number of parameters of each part, once it is attached."""
    _subtracted: dict[str, Tensor] = field(default_factory=dict)
    """The factors that `pissa` has subtracted from the weights, by parameter name."""

    @classmethod
    def of(cls, model: ModelSettings, model_files: ModelFiles) -> TrainedAdapter:
        """The adapter of a recipe. Raises WeightsError E1437 for layers that do not exist, E1440 for a file of another
        kind, and what reading the file raises."""
        names, settings = LayerNames.of(model_files), model.adapter
        folders = {part: model_files.spec.folders[part] for part in model.adapted_parts}
        if settings.path is not None:
            denoisers = [folder for folder in folders.values() if folder in names.denoisers]
            only = denoisers[0] if len(denoisers) == 1 else None
            initial = files.read(settings.path, names, denoiser=only)
            return cls(settings, names, folders, _shapes_of(initial, model, folders), initial)
        layers = _layers(settings.targets, names, folders, model_files.spec.layers)
        _require_use(settings, layers, folders, names)
        if settings.kind == "oft":
            _require_matrices(layers, folders, names)
        return cls(settings, names, folders, {part: _shape(settings, part, layers[part]) for part in folders})

    def __str__(self) -> str:
        shape = next(iter(self.shapes.values()))
        ranks = sorted({shape.ranks.get(path, shape.rank) for shape in self.shapes.values() for path in shape.layers})
        if shape.method == "oft":
            return f"oft in blocks of {ranks[0]}"
        rank = f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {ranks[0]} to {ranks[-1]}"
        return f"{shape.method} of {rank}"

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes for the user about the file that it continues from."""
        return () if self.initial is None else tuple(f"{self.settings.path}: {note}" for note in self.initial.notes)

    @property
    def layers(self) -> tuple[str, ...]:
        """The layers that get an adapter, as `part/layer`."""
        return tuple(f"{part}/{path}" for part, shape in self.shapes.items() for path in shape.layers)

    def rate_factors(self, parameters: Iterable[str]) -> dict[str, float]:
        """Factors of the learning rates of parameters, by name, where they are not 1 (`model.adapter.b_lr_ratio`)."""
        ratio = self.settings.b_lr_ratio
        return {name: ratio for name in parameters if name.endswith(".lora_up.weight")} if ratio != 1.0 else {}

    def leave_out(self, layers: Collection[str]) -> None:
        """Gives these layers, as `part/layer`, no adapter; before `put_on`, not with a file."""
        assert self.initial is None or not layers
        self.shapes = {
            part: networks.without(shape, {path for path in shape.layers if f"{part}/{path}" in layers})
            for part, shape in self.shapes.items()
        }

    def put_on(self, parts: Mapping[str, nn.Module], seed: int = 0, *, values: bool = True) -> dict[str, nn.Parameter]:
        """Attaches it to the networks, which are frozen, with initial values; returns its parameters by name. values:
        False skips the initial values; the networks may then be on the meta device. Raises WeightsError E1438 to
        E1440."""
        parameters: dict[str, nn.Parameter] = {}
        for part, shape in self.shapes.items():
            network, component = parts[part], self.folders[part]
            networks.attach(network, shape)
            networks.set_dropout(network, self.settings, self.dropout)
            if values and self.initial is not None:
                networks.load(network, self.initial.of(component))
            elif values:
                init = "kaiming" if self.settings.init == "pissa" else self.settings.init
                networks.set_initial(network, component, seed, init)
            if values and self.settings.init == "pissa":
                subtracted = networks.init_pissa(network, shape)
                self._subtracted |= {f"{part}/{path}.{leaf}": factor for (path, leaf), factor in subtracted.items()}
            of_part = {f"{part}/{path}.{leaf}": p for path, leaf, p in networks.adapter_parameters(network)}
            self.numbers[part] = sum(parameter.numel() for parameter in of_part.values())
            parameters |= of_part
        return parameters

    @contextmanager
    def off(self, parts: Mapping[str, nn.Module]) -> Iterator[None]:
        """Context in which the networks compute without it, see `networks.switched_off`."""
        with ExitStack() as stack:
            for part in self.shapes.keys() & parts.keys():
                stack.enter_context(networks.switched_off(parts[part]))
            yield

    @contextmanager
    def address_dropout(self, seed: int, step: int, positions: Tensor, device: torch.device) -> Iterator[None]:
        """Context in which dropout draws for these samples. positions: (B,) int64, in the step's global batch."""
        if not (self.settings.dropout or self.settings.rank_dropout or self.settings.module_dropout):
            yield
            return
        addresses = draws.keys(seed, "adapter dropout", step, positions.numpy())
        with self.dropout.at(torch.from_numpy(addresses.view("int64")).to(device, non_blocking=True)):
            yield

    def modules(self, weights: Mapping[str, Tensor]) -> dict[LayerName, AdapterModule]:
        """The adapter of each layer. weights: its parameters by name."""
        return {layer: module for layer, module, _ in self._layers(weights)}

    def _layers(self, weights: Mapping[str, Tensor]) -> Iterator[tuple[LayerName, AdapterModule, dict[str, Tensor]]]:
        """Each layer with its adapter and its parameters by leaf."""
        leaves: dict[tuple[str, str], dict[str, Tensor]] = {}
        for name, tensor in weights.items():
            part, path, leaf = _split(name)
            leaves.setdefault((part, path), {})[leaf] = tensor
        for (part, path), values in leaves.items():
            yield LayerName(self.folders[part], path), networks.as_module(self.shapes[part], path, values), values

    def as_file(self, weights: Mapping[str, Tensor], extra: Mapping[str, Tensor] | None = None) -> Adapter:
        """The adapter to write: the change relative to the original weights. weights: by name, on the CPU. extra: the
        additional tensors of a checkpoint; None uses `tensors`."""
        modules = self.modules(weights)
        subtracted = {
            n.removeprefix(START): t.cpu() for n, t in (extra if extra is not None else self.tensors()).items()
        }
        if subtracted:
            initial = self.modules(subtracted)
            modules = {layer: _subtract(module, initial[layer]) for layer, module in modules.items()}
        return Adapter(modules)

    def shorten(self, weights: Mapping[str, Tensor]) -> None:
        """Scales changes of layers whose norm exceeds `model.adapter.max_norm` down to it, in place, without
        synchronizing. All factors of a layer are scaled equally."""
        limit = self.settings.max_norm
        if limit is None:
            return
        for layer, module, leaves in self._layers(weights):
            factors = [tensor for leaf, tensor in leaves.items() if leaf in networks.FACTORS]
            norm = torch.linalg.vector_norm(module.difference(self.names.weights[layer]))
            share = (limit / norm.clamp_min(torch.finfo(norm.dtype).tiny)).clamp_max(1.0) ** (1 / len(factors))
            torch._foreach_mul_(factors, share)

    def tensors(self) -> dict[str, Tensor]:
        """The tensors that a checkpoint stores in addition to the parameters."""
        return {f"{START}{name}": factor for name, factor in self._subtracted.items()}

    def load(self, tensors: Mapping[str, Tensor], parts: Mapping[str, nn.Module]) -> None:
        """Loads what `tensors` returned. If other values were subtracted from the weights, on another machine, the
        weights are corrected."""
        subtracted = {name: tensors[f"{START}{name}"].to(factor.device) for name, factor in self._subtracted.items()}
        for part, shape in self.shapes.items() if subtracted else ():
            networks.swap_factors(parts[part], shape, _of_part(part, self._subtracted), _of_part(part, subtracted))
        self._subtracted = subtracted


def layer_of(name: str) -> str:
    """The layer, as `part/layer`, of an adapter's parameter."""
    part, path, _ = _split(name)
    return f"{part}/{path}"


def _of_part(part: str, factors: Mapping[str, Tensor]) -> dict[tuple[str, str], Tensor]:
    return {_split(name)[1:]: factor for name, factor in factors.items() if name.startswith(f"{part}/")}


def _split(name: str) -> tuple[str, str, str]:
    """Part, path and leaf of a parameter's name."""
    part, _, rest = name.partition("/")
    leaf = next(leaf for leaf in networks.ALL_LEAVES if rest.endswith(f".{leaf}"))
    return part, rest.removesuffix(f".{leaf}"), leaf


def _subtract(module: AdapterModule, initial: AdapterModule) -> AdapterModule:
    """module − initial, with twice the rank."""
    down = torch.cat([term.tensors["lora_down.weight"].float() for term in (module, initial)])
    up = torch.cat([module.tensors["lora_up.weight"].float(), -initial.tensors["lora_up.weight"].float()], dim=1)
    return AdapterModule("lora", {"lora_down.weight": down, "lora_up.weight": up}, module.scale * len(down))


# --- which layers, of which rank --------------------------------------------------------------------------------------


def _layers(
    entries: Iterable[str], names: LayerNames, folders: Mapping[str, str], family_patterns: Mapping[str, str]
) -> dict[str, list[str]]:
    """Paths of the adapted layers of each part, in the model's order. family_patterns: see `targets.select_layers`."""
    chosen: dict[str, set[str]] = {part: set() for part in folders}
    for entry in entries:
        _require_part("targets", entry, folders, names)
        parts, rest = _parts_of(entry, folders)
        failures = []
        for part in parts:
            patterns = rest if rest in get_args(targets.Preset) else [rest]
            try:
                chosen[part] |= {
                    layer.path for layer in targets.select_layers(names, folders[part], patterns, family_patterns)
                }
            except WeightsError as error:
                failures.append(error)
        if len(failures) == len(parts):
            raise failures[0]
    for part, paths in chosen.items():
        if not paths:
            raise WeightsError(
                f"model.adapter.targets: {', '.join(entries)} matches no layer of {part}, which is in model.train; add "
                f"{part}/attention, or remove {part} from model.train",
                code="E1437",
            )
    return {
        part: [layer.path for layer in names.weights if layer.component == folders[part] and layer.path in chosen[part]]
        for part in folders
    }


def _parts_of(entry: str, folders: Mapping[str, str]) -> tuple[Sequence[str], str]:
    """The parts that a target applies to, and its pattern."""
    first, slash, rest = entry.partition("/")
    return ([first], rest) if slash and first in folders else (list(folders), entry)


def _require_part(setting: str, entry: str, folders: Mapping[str, str], names: LayerNames) -> None:
    """Raises WeightsError E1437 if a target names a part that is not trained; no layer has a slash in its name."""
    first, slash, rest = entry.partition("/")
    if not slash or any(fnmatchcase(part, first) for part in folders):
        return
    near = None if first in names.shapes else find_closest(first, folders)
    remedy = f"write {near}/{rest}" if near else f"add {first} to model.train, or remove {entry}"
    raise WeightsError(
        f"model.adapter.{setting}: {entry} is for {first}, but model.train is {', '.join(folders)}; {remedy}",
        code="E1437",
    )


def _require_use(
    settings: AdapterSettings, layers: Mapping[str, Sequence[str]], folders: Mapping[str, str], names: LayerNames
) -> None:
    """Raises WeightsError E1437 for a rank or alpha pattern that matches no layer with an adapter."""
    adapted = [name for part, paths in layers.items() for path in paths for name in (path, f"{part}/{path}")]
    for setting in ("rank_pattern", "alpha_pattern"):
        for pattern in getattr(settings, setting):
            _require_part(setting, pattern, folders, names)
            if not any(fnmatchcase(name, pattern) for name in adapted):
                advice = did_you_mean(pattern, adapted, "`*` matches any part of a name")
                raise WeightsError(
                    f"model.adapter.{setting}: no layer with an adapter matches {pattern!r}; {advice}",
                    code="E1437",
                )


def _require_matrices(layers: Mapping[str, Sequence[str]], folders: Mapping[str, str], names: LayerNames) -> None:
    """Raises WeightsError E1437 for a convolution of several pixels, whose inputs overlap and have no one rotation."""
    for part, paths in layers.items():
        for path in paths:
            kernel = names.weights[LayerName(folders[part], path)][2:]
            if any(side > 1 for side in kernel):
                raise WeightsError(
                    f"model.adapter.targets: {part}/{path} is a convolution of {'×'.join(map(str, kernel))}, and "
                    "model.adapter.kind=oft is for linear layers; write attention+mlp or all-linear",
                    code="E1437",
                )


def _shape(settings: AdapterSettings, part: str, layers: Sequence[str]) -> AdapterShape:
    assert settings.kind != "none"
    return AdapterShape(
        settings.kind,
        layers,
        settings.block_size if settings.kind == "oft" else settings.rank,
        settings.alpha,
        {path: rank for path in layers if (rank := _last_match(settings.rank_pattern, part, path)) is not None},
        {path: alpha for path in layers if (alpha := _last_match(settings.alpha_pattern, part, path)) is not None},
        settings.factor,
        settings.decompose_both,
    )


def _last_match(patterns: Mapping[str, V], part: str, path: str) -> V | None:
    """The value of the last pattern that matches a layer."""
    names = (f"{part}/{path}", path)
    matching = [value for pattern, value in patterns.items() if any(fnmatchcase(name, pattern) for name in names)]
    return matching[-1] if matching else None


def _shapes_of(initial: Adapter, model: ModelSettings, folders: Mapping[str, str]) -> dict[str, AdapterShape]:
    """The shapes of a file's adapter. Raises WeightsError E1440 if the recipe trains other parts or another kind, or if
    the file cannot be trained."""
    part_of = {folders[part]: part for part in folders}
    other = [component for component in initial.components if component not in part_of]
    missing = [part for component, part in part_of.items() if component not in initial.components]
    if other or missing:
        raise WeightsError(
            f"model.adapter.path: {model.adapter.path} changes {', '.join(initial.components)}, but model.train is "
            f"{', '.join(model.adapted_parts)}; train the same parts",
            code="E1440",
        )
    method = _method_of(initial, model.adapter.path)
    if unfit := model.adapter.unfit_for(method):
        raise WeightsError(
            f"model.adapter.path: {model.adapter.path} is of kind {method}, which has no {unfit}; leave it out",
            code="E1440",
        )
    if model.adapter.kind not in ("none", method):
        raise WeightsError(
            f"model.adapter.path: {model.adapter.path} is of kind {method}, but model.adapter.kind is "
            f"{model.adapter.kind}; remove the kind, or write {method}",
            code="E1440",
        )
    return {part: networks.shape_of(initial.of(folders[part])) for part in folders}


def _method_of(initial: Adapter, path: Path | None) -> str:
    """The method of all layers of a file. Raises WeightsError E1440 for several methods, or one that cannot be
    trained."""
    remedy = (
        "convert it to a plain LoRA with `mezzotint resize FILE NEW.safetensors --base=MODEL --rank=N`, and continue "
        "from that"
    )
    for layer, module in initial.modules.items():
        if kind := networks.reason_untrainable(module):
            raise WeightsError(
                f"model.adapter.path: {path} cannot be trained: {layer} is {kind}; {remedy}", code="E1440"
            )
    methods = sorted({networks.method_of(module) for module in initial.modules.values()})
    if len(methods) > 1:
        raise WeightsError(
            f"model.adapter.path: {path} has layers of several kinds ({', '.join(methods)}), which cannot be trained "
            f"together; {remedy}",
            code="E1440",
        )
    return methods[0]
