"""The adapter that a run trains: which layers of which parts, its parameters by name, and what is written of them.

A parameter is called `part/layer.leaf`, as `denoiser/mid_block.attentions.0.proj_in.lora_down.weight`, whatever the
library calls it: so it stands in checkpoints.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
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
from mezzotint.errors import WeightsError, did_you_mean, most_alike
from mezzotint.settings.sections.adapter import AdapterSettings
from mezzotint.settings.sections.model import ModelSettings
from mezzotint.weights.model_files import ModelFiles

V = TypeVar("V", int, float)
START = "start."
"""Before the names of factors that were taken out of the weights, in checkpoints. Every process holds them whole: they
are not called like parameters, of which it may hold rows."""


@dataclass
class TrainedAdapter:
    """An adapter of a model. names: of the model's layers. folders: of each part that it changes, its component.
    shapes: what is put on each part. begun: values to begin with, of a file."""

    settings: AdapterSettings
    names: LayerNames
    folders: Mapping[str, str]
    shapes: Mapping[str, AdapterShape]
    begun: Adapter | None = None
    dropout: DropoutDraws = field(default_factory=DropoutDraws)
    numbers: dict[str, int] = field(default_factory=dict)
    """How many it has trained of each part, once it is put on."""
    _taken: dict[str, Tensor] = field(default_factory=dict)
    """By parameter's name, the factors that `pissa` has taken out of the weights."""

    @classmethod
    def of(cls, model: ModelSettings, model_files: ModelFiles) -> TrainedAdapter:
        """The adapter that a recipe asks for. Raises WeightsError E1437 for layers that are nowhere, E1440 for a file
        of another kind, and what reading the file raises."""
        names, settings = LayerNames.of(model_files), model.adapter
        folders = {part: model_files.spec.folders[part] for part in model.adapted}
        if settings.path is not None:
            denoisers = [folder for folder in folders.values() if folder in names.denoisers]
            only = denoisers[0] if len(denoisers) == 1 else None
            begun = files.read(settings.path, names, denoiser=only)
            return cls(settings, names, folders, _shapes_of(begun, model, folders), begun)
        layers = _layers(settings.targets, names, folders, model_files.spec.layers)
        _require_use(settings, layers, folders, names)
        return cls(settings, names, folders, {part: _shape(settings, part, layers[part]) for part in folders})

    def __str__(self) -> str:
        shape = next(iter(self.shapes.values()))
        ranks = sorted({shape.ranks.get(path, shape.rank) for shape in self.shapes.values() for path in shape.layers})
        rank = f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {ranks[0]} to {ranks[-1]}"
        return f"{shape.method} of {rank}"

    @property
    def notes(self) -> tuple[str, ...]:
        """What a user should know of the file that it goes on from, in sentences."""
        return () if self.begun is None else tuple(f"{self.settings.path}: {note}" for note in self.begun.notes)

    def put_on(self, parts: Mapping[str, nn.Module], seed: int = 0, *, values: bool = True) -> dict[str, nn.Parameter]:
        """Puts it on the networks, which are frozen, with the values that training begins with; returns its parameters
        by name. values: whether those are wanted; without, networks may lie on the meta device. Raises WeightsError
        E1438 to E1440."""
        parameters: dict[str, nn.Parameter] = {}
        for part, shape in self.shapes.items():
            network, component = parts[part], self.folders[part]
            networks.put_on(network, shape)
            if self.settings.dropout:
                networks.set_dropout(network, self.settings.dropout, self.dropout)
            if values and self.begun is not None:
                networks.load(network, self.begun.of(component))
            elif values:
                init = "kaiming" if self.settings.init == "pissa" else self.settings.init
                networks.set_initial(network, component, seed, init)
            if values and self.settings.init == "pissa":
                taken = networks.take_out(network, shape)
                self._taken |= {f"{part}/{path}.{leaf}": factor for (path, leaf), factor in taken.items()}
            mine = {f"{part}/{path}.{leaf}": parameter for path, leaf, parameter in networks.trained(network)}
            self.numbers[part] = sum(parameter.numel() for parameter in mine.values())
            parameters |= mine
        return parameters

    @contextmanager
    def drawing(self, seed: int, step: int, positions: Tensor, device: torch.device) -> Iterator[None]:
        """Within, dropout draws for these samples. positions: (B,) int64, places in the step's global batch."""
        if not self.settings.dropout:
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
        for (part, path), own in leaves.items():
            yield LayerName(self.folders[part], path), networks.as_module(self.shapes[part], path, own), own

    def as_file(self, weights: Mapping[str, Tensor], kept: Mapping[str, Tensor] | None = None) -> Adapter:
        """What is written of its parameters: the change of the model's own weights. weights: by name, on the CPU. kept:
        what a checkpoint keeps besides; None is its own `tensors`."""
        modules = self.modules(weights)
        taken = {n.removeprefix(START): t.cpu() for n, t in (kept if kept is not None else self.tensors()).items()}
        if taken:
            begun = self.modules(taken)
            modules = {layer: _less(module, begun[layer]) for layer, module in modules.items()}
        return Adapter(modules)

    def shorten(self, weights: Mapping[str, Tensor]) -> None:
        """Scales changes of layers that are longer than `model.adapter.max_norm` back to it, in place, without waiting
        for the device. All factors of a layer take the same share."""
        limit = self.settings.max_norm
        if limit is None:
            return
        for layer, module, leaves in self._layers(weights):
            factors = [tensor for leaf, tensor in leaves.items() if leaf in networks.FACTORS]
            norm = torch.linalg.vector_norm(module.difference(self.names.weights[layer]))
            share = (limit / norm.clamp_min(torch.finfo(norm.dtype).tiny)).clamp_max(1.0) ** (1 / len(factors))
            torch._foreach_mul_(factors, share)

    def tensors(self) -> dict[str, Tensor]:
        """What a checkpoint keeps of it besides its parameters."""
        return {f"{START}{name}": factor for name, factor in self._taken.items()}

    def load(self, tensors: Mapping[str, Tensor], parts: Mapping[str, nn.Module]) -> None:
        """Takes back what `tensors` gave. Where other numbers were taken out of the weights, on another machine, the
        weights are corrected."""
        kept = {name: tensors[f"{START}{name}"].to(factor.device) for name, factor in self._taken.items()}
        for part, shape in self.shapes.items() if kept else ():
            networks.exchange(parts[part], shape, _of_part(part, self._taken), _of_part(part, kept))
        self._taken = kept


def _of_part(part: str, factors: Mapping[str, Tensor]) -> dict[tuple[str, str], Tensor]:
    return {_split(name)[1:]: factor for name, factor in factors.items() if name.startswith(f"{part}/")}


def _split(name: str) -> tuple[str, str, str]:
    """Part, path and leaf of a parameter's name."""
    part, _, rest = name.partition("/")
    leaf = next(leaf for leaf in networks.ALL_LEAVES if rest.endswith(f".{leaf}"))
    return part, rest.removesuffix(f".{leaf}"), leaf


def _less(module: AdapterModule, begun: AdapterModule) -> AdapterModule:
    """module − begun, of twice the rank."""
    down = torch.cat([each.tensors["lora_down.weight"].float() for each in (module, begun)])
    up = torch.cat([module.tensors["lora_up.weight"].float(), -begun.tensors["lora_up.weight"].float()], dim=1)
    return AdapterModule("lora", {"lora_down.weight": down, "lora_up.weight": up}, module.scale * len(down))


# --- which layers, of which rank --------------------------------------------------------------------------------------


def _layers(
    words: Iterable[str], names: LayerNames, folders: Mapping[str, str], own: Mapping[str, str]
) -> dict[str, list[str]]:
    """Paths of the adapted layers of each part, in the model's order. own: as of `targets.chosen`."""
    chosen: dict[str, set[str]] = {part: set() for part in folders}
    for word in words:
        _require_part("targets", word, folders, names)
        parts, rest = _parts_of(word, folders)
        failures = []
        for part in parts:
            which = rest if rest in get_args(targets.Preset) else [rest]
            try:
                chosen[part] |= {layer.path for layer in targets.chosen(names, folders[part], which, own)}
            except WeightsError as error:
                failures.append(error)
        if len(failures) == len(parts):
            raise failures[0]
    for part, paths in chosen.items():
        if not paths:
            raise WeightsError(
                f"model.adapter.targets: {', '.join(words)} takes no layer of {part}, which model.train names; add "
                f"{part}/attention, or leave {part} out of model.train",
                code="E1437",
            )
    return {part: [each.path for each in names.weights if each.component == folders[part] and each.path in chosen[part]]
            for part in folders}  # fmt: skip


def _parts_of(word: str, folders: Mapping[str, str]) -> tuple[Sequence[str], str]:
    """The parts that a word is about, and what it says of them."""
    first, slash, rest = word.partition("/")
    return ([first], rest) if slash and first in folders else (list(folders), word)


def _require_part(setting: str, word: str, folders: Mapping[str, str], names: LayerNames) -> None:
    """Raises WeightsError E1437 where a word is about a part that is not trained; no layer has a slash in its name."""
    first, slash, rest = word.partition("/")
    if not slash or any(fnmatchcase(part, first) for part in folders):
        return
    near = None if first in names.shapes else most_alike(first, folders)
    remedy = f"write {near}/{rest}" if near else f"add {first} to model.train, or leave {word} out"
    raise WeightsError(
        f"model.adapter.{setting}: {word} is about {first}, and model.train names {', '.join(folders)}; {remedy}",
        code="E1437",
    )


def _require_use(
    settings: AdapterSettings, layers: Mapping[str, Sequence[str]], folders: Mapping[str, str], names: LayerNames
) -> None:
    """Raises WeightsError E1437 for a rank or an alpha of layers that have no adapter."""
    known = [name for part, paths in layers.items() for path in paths for name in (path, f"{part}/{path}")]
    for setting in ("rank_pattern", "alpha_pattern"):
        for pattern in getattr(settings, setting):
            _require_part(setting, pattern, folders, names)
            if not any(fnmatchcase(name, pattern) for name in known):
                advice = did_you_mean(pattern, known, "`*` stands for any part of a name")
                raise WeightsError(
                    f"model.adapter.{setting}: no layer that gets an adapter is called {pattern!r}; {advice}",
                    code="E1437",
                )


def _shape(settings: AdapterSettings, part: str, layers: Sequence[str]) -> AdapterShape:
    assert settings.kind != "none"
    return AdapterShape(
        settings.kind,
        layers,
        settings.rank,
        settings.alpha,
        {path: rank for path in layers if (rank := _last(settings.rank_pattern, part, path)) is not None},
        {path: alpha for path in layers if (alpha := _last(settings.alpha_pattern, part, path)) is not None},
        settings.factor,
        settings.decompose_both,
    )


def _last(patterns: Mapping[str, V], part: str, path: str) -> V | None:
    """The value of the last pattern that fits a layer."""
    names = (f"{part}/{path}", path)
    fitting = [value for pattern, value in patterns.items() if any(fnmatchcase(name, pattern) for name in names)]
    return fitting[-1] if fitting else None


def _shapes_of(begun: Adapter, model: ModelSettings, folders: Mapping[str, str]) -> dict[str, AdapterShape]:
    """As a file has it. Raises WeightsError E1440 where the recipe trains other parts or another kind, or where the
    file has what cannot be trained."""
    part_of = {folders[part]: part for part in folders}
    other = [component for component in begun.components if component not in part_of]
    lacking = [part for component, part in part_of.items() if component not in begun.components]
    if other or lacking:
        what = f"changes {', '.join(begun.components)}"
        raise WeightsError(
            f"model.adapter.path: {model.adapter.path} {what}, and model.train is {', '.join(model.adapted)}; train "
            "the same parts",
            code="E1440",
        )
    method = _method_of(begun, model.adapter.path)
    if model.adapter.kind not in ("none", method):
        raise WeightsError(
            f"model.adapter.path: {model.adapter.path} is of kind {method}, and model.adapter.kind is "
            f"{model.adapter.kind}; leave the kind out, or write {method}",
            code="E1440",
        )
    return {part: networks.shape_of(begun.of(folders[part])) for part in folders}


def _method_of(begun: Adapter, path: Path | None) -> str:
    """The one method that all layers of a file have. Raises WeightsError E1440 for several, or one that cannot be
    trained."""
    remedy = (
        "make a plain LoRA of it with `mezzotint resize FILE NEW.safetensors --base=MODEL --rank=N`, and continue from "
        "that"
    )
    for layer, module in begun.modules.items():
        if what := networks.untrainable(module):
            raise WeightsError(
                f"model.adapter.path: {path} cannot be trained: {layer} is {what}; {remedy}", code="E1440"
            )
    methods = sorted({networks.method_of(module) for module in begun.modules.values()})
    if len(methods) > 1:
        raise WeightsError(
            f"model.adapter.path: {path} has layers of several kinds ({', '.join(methods)}), which cannot be trained "
            f"together; {remedy}",
            code="E1440",
        )
    return methods[0]
