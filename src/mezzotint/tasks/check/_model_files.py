"""The contents of a model's folder, read from configurations and headers: components, their files, their parameters."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from torch import nn

from mezzotint import registry
from mezzotint.adapters.networks import adapter_parameters
from mezzotint.errors import WeightsError
from mezzotint.families.base import ModelFamily
from mezzotint.settings.families.base import family_spec
from mezzotint.settings.sections.model import ModelSettings
from mezzotint.weights import low_bit
from mezzotint.weights.files.tensor_files import SIZES, Stored, TensorInfo, read_header, shards
from mezzotint.weights.folder import state
from mezzotint.weights.folder.components import shapes as network_shapes
from mezzotint.weights.folder.model_folder import ModelFolder, find_weights, open_folder
from mezzotint.weights.layouts.base import VAE
from mezzotint.weights.model_files import ModelFiles
from mezzotint.weights.single_file.overlay import Overlay
from mezzotint.weights.single_file.single_file import open_single
from mezzotint.weights.single_file.standalone import ExpectedPart, open_vae


@dataclass(frozen=True, slots=True)
class Component:
    """A folder of the model. part: the part of the family that it contains, "" for none. file: the file of its weights,
    "" without weights. bytes: size of all its files. parameters: number of its weights, by the header. types: their
    types, as the file names them."""

    name: str
    part: str
    file: str
    bytes: int
    parameters: int
    types: tuple[str, ...]


def components(
    settings: ModelSettings, parts: Mapping[str, nn.Module], opened: Callable[[], ModelFiles] | None = None
) -> tuple[tuple[Component, ...], list[WeightsError]]:
    """The components of a model's folder, sorted, and the errors that keep them from being loaded.

    settings: with the path resolved. parts: of the family, by name, as its configurations describe them; {} if they
    could not be read. opened: opens the model's files, if they are open already. No tensor is loaded. A component that
    contains no part of the family is listed and not checked.
    """
    try:
        kind: type[ModelFamily] = registry.find("families", settings.family).Family
        opened = opened or partial(kind.files.of, settings)
        stored = None if kind.spec.layout else opened().stored_parts(parts)
    except WeightsError as error:
        return (), [error]
    if stored is not None:
        return _components_of_parts(stored, parts)
    found_components, problems = _in_one_file(settings) if settings.path.is_file() else _in_folder(settings, parts)
    if settings.over and not problems:
        try:
            Overlay(settings.path, settings.over, settings.config).require_fit()
        except WeightsError as error:
            problems.append(error)
    return found_components, problems


def _in_folder(
    settings: ModelSettings, parts: Mapping[str, nn.Module]
) -> tuple[tuple[Component, ...], list[WeightsError]]:
    problems: list[WeightsError] = []
    if not parts and not (settings.path / "model_index.json").is_file():
        return (), []  # the reason why there are no parts, reported before
    try:
        folder = open_folder(settings.config_source)
    except WeightsError as error:
        return (), [error]
    part_of = {_component_of(part, module, folder): part for part, module in parts.items()}
    found_components = []
    for path in (folder.root / name for name in folder.components()):
        part = part_of.get(path.name, "")
        try:
            if part == "vae" and settings.vae is not None:
                found_components.append(_other_vae(settings, settings.vae, folder))
            else:
                found_components.append(_component(path, part, parts.get(part), settings))
        except WeightsError as error:
            found_components.append(Component(path.name, part, "", _bytes(path), 0, ()))
            if part and settings.weights == "files":
                problems.append(error)
    return tuple(found_components), problems


def _components_of_parts(
    stored: Mapping[str, Stored | None], parts: Mapping[str, nn.Module]
) -> tuple[tuple[Component, ...], list[WeightsError]]:
    """The components of a model whose parts are separate files, each by its part's name. bytes: of their tensors."""
    found_components, problems = [], []
    for part, weights in sorted(stored.items()):
        if weights is None:
            found_components.append(Component(part, part, "", 0, 0, ()))
            continue
        found_components.append(_describe_component(part, part, weights.path.name, weights.header()))
        try:
            in_file = {name: info.shape for name, info in weights.header().items()}
            state.require_shapes(weights.path, _shapes_without_adapter(parts[part]), in_file)
        except WeightsError as error:
            problems.append(error)
    return tuple(found_components), problems


def _shapes_without_adapter(module: nn.Module) -> dict[str, tuple[int, ...]]:
    """Shapes of a network's tensors by name, without an applied adapter; quantized matrices have their original
    shape."""
    added = {id(added_parameter.parameter) for added_parameter in adapter_parameters(module)}
    tensors = {name: tensor for name, tensor in module.state_dict(keep_vars=True).items() if id(tensor) not in added}
    shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items()} | {
        f"{name}.weight": (layer.out_features, layer.in_features)
        for name, layer in module.named_modules()
        if isinstance(layer, low_bit.LowBitLinear)
    }
    return {name.replace(".base_layer.", "."): shape for name, shape in shapes.items()}


def _in_one_file(settings: ModelSettings) -> tuple[tuple[Component, ...], list[WeightsError]]:
    try:
        single = open_single(
            settings.path,
            registry.find("weights/layouts", family_spec(settings.family).layout).LAYOUT,
            config=settings.config,
            averaged=settings.ema_weights == "use",
            prediction=settings.prediction,
        )
        found_components = []
        for name in sorted(single.layout.networks):
            if name == "vae" and settings.vae is not None:
                found_components.append(_other_vae(settings, settings.vae, single.folder))
                continue
            stored = single.component(name)
            stored.require_known()
            found_components.append(
                _describe_component(name, "denoiser" if name == "unet" else name, single.path.name, stored.header())
            )
        return tuple(found_components), []
    except WeightsError as error:
        return (), [error]


def _other_vae(settings: ModelSettings, path: Path, folder: ModelFolder) -> Component:
    """The component that `model.vae` names. bytes: of its tensors."""
    config, config_path = folder.config("vae"), folder.root / "vae" / "config.json"
    expected = ExpectedPart("vae", config, config_path, network_shapes("vae", config, where=config_path), VAE)
    other = open_vae(path, expected, model_name=family_spec(settings.family).label)
    component = _describe_component("vae", "vae", other.path.name, other.stored.header())
    shapes = network_shapes("vae", other.config, where=other.where)
    _require_count(other.path, component.parameters, sum(map(math.prod, shapes.values())))
    return component


def _describe_component(name: str, part: str, file: str, header: Mapping[str, TensorInfo]) -> Component:
    size = sum(_numbers(info) * SIZES[info.dtype] for info in header.values())
    types = tuple(sorted({info.dtype for info in header.values()}))
    return Component(name, part, file, size, sum(map(_numbers, header.values())), types)


def _component(path: Path, part: str, module: nn.Module | None, settings: ModelSettings) -> Component:
    weights = find_weights(path)
    if weights is None:
        if part and settings.weights == "files":
            raise WeightsError(
                f"{path}: has a configuration and no weights; give the path of a complete model, "
                "or set model.weights=random to train from scratch",
                code="E1407",
            )
        return Component(path.name, part, "", _bytes(path), 0, ())
    header = {name: info for name, info in read_header(weights.path).items() if not name.endswith("position_ids")}
    files = shards(weights.path)
    name = files[0].name if len(files) == 1 else f"{len(files)} files of {weights.path.name}"
    component = replace(_describe_component(path.name, part, name, header), bytes=_bytes(path))
    is_changed = part == "denoiser" and (settings.depth is not None or settings.task in ("edit", "inpaint"))
    if module is not None and settings.weights == "files" and not is_changed:
        expected = low_bit.numbers_of(module) - sum(added.parameter.numel() for added in adapter_parameters(module))
        _require_count(weights.path, component.parameters, expected)
    return component


def _require_count(path: Path, stored: int, described: int) -> None:
    if stored != described:
        raise WeightsError(
            f"{path}: contains {stored:,} weights, but its config.json describes {described:,}; the two "
            "belong to different models, or the file is incomplete",
            code="E1405",
        )


def _component_of(part: str, module: nn.Module, folder: ModelFolder) -> str:
    """The folder of a part: the one with its name, or the first that model_index.json assigns to the part's class."""
    if folder.has(part):
        return part
    names = {kind.__name__ for kind in type(module).__mro__}
    listed = [name for name, kind in folder.index.items() if isinstance(kind, list) and names & set(map(str, kind))]
    return next((name for name in listed if folder.has(name)), "")


def _numbers(info: TensorInfo) -> int:
    return math.prod(info.shape)


def _bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
