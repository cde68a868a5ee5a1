"""Merges model files: later ones override the first, tensor by tensor, or all are summed with weights.

The first is a complete model and determines the kind of the result, which is computed as it is written, a few tensors
at a time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from torch import Tensor

from mezzotint.errors import WeightsError
from mezzotint.weights.files import pickled, tensor_files
from mezzotint.weights.files.tensor_files import Stored, TensorInfo
from mezzotint.weights.folder.components import DTypeName
from mezzotint.weights.folder.model_folder import ModelFolder, open_folder
from mezzotint.weights.keymap import KeyMap
from mezzotint.weights.single_file import known_layouts, match_tensors, planned, writing
from mezzotint.weights.single_file.extras import Extras, extras_of, read_extras
from mezzotint.weights.single_file.match_tensors import ModelTensors, Shapes
from mezzotint.weights.single_file.planned import PlannedTensor
from mezzotint.weights.single_file.single_file import open_single

KINDS: dict[DTypeName, str] = {"fp32": "F32", "fp16": "F16", "bf16": "BF16"}
"""Data types of weights by safetensors' names."""


@dataclass(frozen=True, slots=True)
class Base:
    """The first model of a merge. folder: of its configurations. layout: of single files of its kind."""

    source: ModelTensors
    folder: ModelFolder
    layout: KeyMap
    shapes: Shapes
    extras: Extras
    scheduler: Mapping[str, object]


def open_base(path: Path, *, config: Path | None = None, store: Path | None = None) -> Base:
    """Opens the first model, a folder or a single file in any format. config, store: see `open_single`.

    Raises WeightsError as `open_single`, `open_folder` and `match_tensors` do; E1405 when tensors are missing.
    """
    if path.is_dir():
        folder = open_folder(path)
        layout = known_layouts.for_components([n for n in known_layouts.component_names() if folder.has(n)])
        if layout is None:
            raise WeightsError(
                f"{path}: is not a complete model of SD 1.x, SD 2.x or SDXL; give one as the first", code="E1452"
            )
        shapes = match_tensors.shapes_of(folder, layout)
        scheduler: Mapping[str, object] = folder.config("scheduler", "scheduler_config.json")
        source, extras = match_tensors.of_folder(path, layout, shapes), read_extras(path)
    else:
        single = open_single(path, None, config=config, store=store)
        folder, layout, extras = single.folder, single.layout, extras_of(single)
        shapes = match_tensors.shapes_of(folder, layout)
        source = match_tensors.of_file(path, single.file, layout, shapes)
        scheduler = single.scheduler(folder.config("scheduler", "scheduler_config.json"))
    _require_whole(source, shapes)
    return Base(source, folder, layout, shapes, extras, scheduler)


def open_other(path: Path, base: Base, *, averaged: bool = False, store: Path | None = None) -> ModelTensors:
    """Opens a later model, complete or partial: the folder of a model or of a component, or a file in any format.

    Raises WeightsError E1401, E1402, E1408, E1411, E1415, E1420, E1451, E1452.
    """
    if not path.exists():
        raise WeightsError(f"{path}: does not exist (looked in {Path.cwd()}); check the path", code="E1401")
    if path.is_dir():
        return match_tensors.of_folder(path, base.layout, base.shapes)
    return match_tensors.of_file(path, pickled.readable(path, store), base.layout, base.shapes, averaged=averaged)


def _require_whole(source: ModelTensors, shapes: Shapes) -> None:
    for component, names in shapes.items():
        missing = source.find_missing(component, names)
        if missing:
            raise WeightsError(
                f"{source.path}: lacks {tensor_files.summary(missing, 3)} of {component}; give a complete model",
                code="E1405",
            )


@dataclass(frozen=True)
class Merge:
    """The merge of a base and other sources. shares: weights of a sum, one for each source, the base's first; if empty,
    later sources override earlier ones. dtype: of all weights; None keeps each tensor's (in a sum, the base's)."""

    base: Base
    others: Sequence[ModelTensors]
    shares: Sequence[float] = ()
    dtype: DTypeName | None = None

    def __post_init__(self) -> None:
        if self.shares:
            assert len(self.shares) == 1 + len(self.others)
            for other in self.others:
                _require_whole(other, self.base.shapes)

    @cached_property
    def origin(self) -> Mapping[str, Mapping[str, ModelTensors]]:
        """By component and tensor, the source: the last one that has the tensor (in a sum, the base)."""
        origin = {component: dict.fromkeys(names, self.base.source) for component, names in self.base.shapes.items()}
        for other in () if self.shares else self.others:
            for component, stored in other.components.items():
                origin[component] |= dict.fromkeys(stored.names(), other)
        return origin

    def header(self, component: str) -> dict[str, TensorInfo]:
        """Data types, by safetensors' names, and shapes of a component's tensors."""
        headers = {source: source.components[component].header() for source in set(self.origin[component].values())}
        kinds = {name: headers[source][name].dtype for name, source in self.origin[component].items()}
        shapes = self.base.shapes[component].items()
        return {name: TensorInfo(KINDS[self.dtype] if self.dtype else kinds[name], shape) for name, shape in shapes}

    def read(self, component: str, names: Collection[str]) -> dict[str, Tensor]:
        """Tensors of the result under our names. Raises WeightsError E1403, E1416, and as reading files does."""
        tensors = self.values(component, names)
        if self.dtype is None:
            return tensors
        return writing.cast_component(self.base.source.path, tensors, self.dtype)

    def values(self, component: str, names: Collection[str]) -> dict[str, Tensor]:
        """As `read`, before the cast to `dtype`."""
        if self.shares:
            return self._sum(component, names)
        tensors: dict[str, Tensor] = {}
        for source in (self.base.source, *self.others):
            of_source = [name for name in names if self.origin[component][name] is source]
            tensors |= source.components[component].read(of_source) if of_source else {}
        return tensors

    def _sum(self, component: str, names: Collection[str]) -> dict[str, Tensor]:
        """Sums computed in float32, returned in the base's data types."""
        of_base = self.base.source.components[component].read(names)
        total = {name: tensor.float() * self.shares[0] for name, tensor in of_base.items()}
        for share, other in zip(self.shares[1:], self.others, strict=True):
            for name, tensor in other.components[component].read(names).items():
                total[name] += tensor.float() * share
        return {name: tensor.to(of_base[name].dtype) for name, tensor in total.items()}

    @property
    def stored(self) -> dict[str, Stored]:
        """The result by component."""
        return {component: MergedComponent(self, component) for component in self.base.shapes}

    def report(self) -> Iterator[str]:
        """Lines that report which tensors come from which source."""
        for component, names in self.origin.items():
            if self.shares:
                shares = " + ".join(
                    f"{share:g} · {source.path.name}"
                    for share, source in zip(self.shares, (self.base.source, *self.others), strict=True)
                )
                yield f"{component}: {len(names)} tensors, {shares}"
                continue
            counts = Counter(str(source.path) for source in names.values())
            yield f"{component}: " + ", ".join(f"{count} tensors from {path}" for path, count in counts.items())
        for source in (self.base.source, *self.others):
            yield from _notes(source, self.base)

    def keys(self) -> dict[str, dict[str, str]]:
        """By component and our name: the source file and the tensor's name in it."""
        names_in = {s: {c: part.names() for c, part in s.components.items()} for s in (self.base.source, *self.others)}
        return {
            component: {name: f"{source.path}: {names_in[source][component][name]}" for name, source in names.items()}
            for component, names in self.origin.items()
        }


def _notes(source: ModelTensors, base: Base) -> Iterator[str]:
    """Reports tensors of a source that the model does not have, and tensors of the model that the source lacks."""
    if source.leftovers:
        yield f"{source.path}: removed `._backbone`, `stage1.` or `stage2.` from {source.leftovers} names"
    if source.averages:
        yield f"{source.path}: left out: {len(source.averages)} averaged tensors; --ema=use uses them"
    other = [n for n in source.unmapped if n not in source.averages and not base.layout.is_extra(n)]
    if other:
        yield f"{source.path}: left out, since the model has no such tensors: {tensor_files.summary(other)}"
    if source is base.source:
        return
    for component, names in base.shapes.items():
        missing = source.find_missing(component, names)
        if missing and len(missing) < len(names):
            yield f"{source.path}: lacks {tensor_files.summary(missing, 3)} of {component}, which stay unchanged"


@dataclass(frozen=True, slots=True)
class MergedComponent:
    """A component of the result; implements `Stored`."""

    merge: Merge
    name: str

    @property
    def path(self) -> Path:
        """See Stored."""
        return self.merge.base.source.path

    def header(self) -> dict[str, TensorInfo]:
        """See Stored."""
        return self.merge.header(self.name)

    def read(self, names: Collection[str]) -> dict[str, Tensor]:
        """See Stored."""
        return self.merge.read(self.name, names)


def file_plan(merge: Merge, layout: KeyMap) -> list[PlannedTensor]:
    """The tensors of a single file in a layout, read from `merge.stored`."""
    base = merge.base
    configs = {component: base.folder.config(component) for component in base.shapes}
    return planned.plan_layout(layout, configs, base.shapes, merge.stored, base.extras)
