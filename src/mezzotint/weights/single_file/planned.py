"""Plans and writes single files: an ordered list of tensors, each computed from tensors of the model's components,
which are read a few at a time, so the whole model is never in memory."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from pathlib import Path

from torch import Tensor

from mezzotint.weights.files import formats, tensor_files
from mezzotint.weights.files.tensor_files import SIZES, TYPES, Stored, TensorInfo
from mezzotint.weights.folder.components import DTYPES, DTypeName
from mezzotint.weights.keymap import KeyMap, Shape
from mezzotint.weights.single_file import modelspec, writing
from mezzotint.weights.single_file.extras import Extras
from mezzotint.weights.single_file.modelspec import Description

CHUNK = 256 << 20
"""Bytes of tensors that are read at a time; a larger tensor is read separately."""


@dataclass(frozen=True, slots=True)
class PlannedTensor:
    """name, kind, shape: as written in the file; kind is the data type in its header. component, ours: the model's
    tensors that it is computed from; empty for one that belongs to no network. make: computes it from these."""

    name: str
    kind: str
    shape: Shape
    make: Callable[[Mapping[str, Tensor]], Tensor]
    component: str = ""
    ours: tuple[str, ...] = ()

    @property
    def bytes(self) -> int:
        return SIZES[self.kind] * math.prod(self.shape)


@dataclass(frozen=True, slots=True)
class Cast:
    """Stored tensors cast to `dtype`, except integers; implements `Stored`. Reading raises WeightsError E1416 for a
    value that is too large for the type."""

    stored: Stored
    dtype: DTypeName

    @property
    def path(self) -> Path:
        """See Stored."""
        return self.stored.path

    def header(self) -> dict[str, TensorInfo]:
        """See Stored."""
        kind = tensor_files.kind_of(DTYPES[self.dtype])
        return {
            name: TensorInfo(kind if TYPES[info.dtype].is_floating_point else info.dtype, info.shape)
            for name, info in self.stored.header().items()
        }

    def read(self, names: Collection[str]) -> dict[str, Tensor]:
        """See Stored."""
        return writing.cast_component(self.path, self.stored.read(names), self.dtype)


def plan_layout(
    layout: KeyMap,
    configs: Mapping[str, Mapping[str, object]],
    shapes: Mapping[str, Mapping[str, Shape]],
    stored: Mapping[str, Stored],
    extras: Extras,
) -> list[PlannedTensor]:
    """The tensors of a single file in a layout. configs, shapes, stored: by component. extras: further content, and the
    spelling of names in the file that the model came from."""
    plan = [
        PlannedTensor(name, tensor_files.kind_of(tensor.dtype), tuple(tensor.shape), partial(_constant, tensor))
        for name, tensor in writing.other_tensors(layout, extras).items()
    ]
    for component, ours in shapes.items():
        header = stored[component].header()
        for entry in layout.choose(component, configs[component]).table(list(ours)).entries:
            name, shape = writing.spelling(layout, extras, (entry.foreign, entry.foreign_shape(ours)))
            kind, make = header[entry.ours[0]].dtype, entry.to_foreign
            plan.append(PlannedTensor(name, kind, shape, make, component, entry.ours))
    return in_order(plan)


def plan_component(stored: Stored) -> list[PlannedTensor]:
    """The tensors of a file with a single component, here named "model", under its own names."""
    header = stored.header()
    return in_order(
        PlannedTensor(name, info.dtype, info.shape, itemgetter(name), "model", (name,)) for name, info in header.items()
    )


def _constant(tensor: Tensor, _: Mapping[str, Tensor]) -> Tensor:
    return tensor


def in_order(plan: Iterable[PlannedTensor]) -> list[PlannedTensor]:
    """Sorts in the order of safetensors: the widest types first, then by name."""
    return sorted(plan, key=lambda one: (tuple(TYPES).index(one.kind), one.name))


def read_in_order(
    stored: Mapping[str, Stored], plan: Sequence[PlannedTensor], report: Callable[[int], None] | None = None
) -> Iterator[tuple[str, Tensor]]:
    """The tensors of a plan, in its order, read in portions. report: called after each with the number done."""
    portion: list[PlannedTensor] = []
    done = held = 0
    for one in [*plan, None]:
        if portion and (one is None or held + one.bytes > CHUNK):
            yield from read_portion(stored, portion)
            done, held, portion = done + len(portion), 0, []
            if report is not None:
                report(done)
        if one is not None:
            portion.append(one)
            held += one.bytes


def read_portion(stored: Mapping[str, Stored], portion: Sequence[PlannedTensor]) -> Iterator[tuple[str, Tensor]]:
    """The tensors of a portion of a file, by name."""
    names: dict[str, set[str]] = {}
    for one in portion:
        names.setdefault(one.component, set()).update(one.ours)
    tensors = {component: stored[component].read(ours) for component, ours in names.items() if ours}
    for one in portion:
        yield one.name, one.make(tensors.get(one.component, {})).reshape(one.shape)


def write(
    target: Path,
    plan: Sequence[PlannedTensor],
    stored: Mapping[str, Stored],
    description: Description | None = None,
    before: Mapping[str, str] | None = None,
) -> None:
    """Writes a planned file in the format of its suffix; only safetensors files contain the description. before: the
    metadata of the file that the model came from. Raises WeightsError E1403 for networks with non-finite values, and as
    reading tensors does; StorageError E1701."""
    tensors = read_in_order(stored, plan)
    unchecked = tuple(one.name for one in plan if not one.component)
    other = formats.format_for(target)
    if other is not None:
        other.write(target, _check_finite(target, tensors, unchecked))
        return
    tensor_files.write_iteratively(
        target,
        {one.name: TensorInfo(one.kind, one.shape) for one in plan},
        tensors,
        None if description is None else description.metadata(before or {}),
        unchecked=unchecked,
        seal=None if description is None else modelspec.seal,
    )


def _check_finite(
    path: Path, tensors: Iterator[tuple[str, Tensor]], unchecked: Collection[str]
) -> Iterator[tuple[str, Tensor]]:
    for name, tensor in tensors:
        tensor_files.require_finite(path, {name: tensor}, unchecked=unchecked)
        yield name, tensor
