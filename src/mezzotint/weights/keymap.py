"""Two-way maps between our tensor names (diffusers') and those of another program's files.

A layout describes the foreign name of each of our tensors. Applied to the names of a network it gives a `Table`, whose
construction checks that no name occurs twice on either side: reading is the exact inverse of writing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

Shape = tuple[int, ...]
Describe = Callable[[Sequence[str]], Iterator["Entry"]]
Spell = Callable[[str], str]


@dataclass(frozen=True, slots=True)
class Entry:
    """One tensor of a foreign file.

    foreign: its name in the file, as it is written. ours: the tensors it contains, concatenated along the first axis;
    nearly always one. pointwise: a linear layer that is stored as a 1×1 convolution, (O, I, 1, 1). also: other names
    that files use. transposed: a matrix whose rows are our columns.
    """

    foreign: str
    ours: tuple[str, ...]
    pointwise: bool = False
    also: tuple[str, ...] = ()
    transposed: bool = False

    def shapes(self, foreign: Shape) -> dict[str, Shape]:
        """Our shapes, from the shape in the foreign file."""
        shape = foreign[::-1] if self.transposed and len(foreign) == 2 else foreign
        if self.pointwise and shape[2:] and all(side == 1 for side in shape[2:]):
            shape = shape[:2]
        if len(self.ours) > 1 and shape and shape[0] % len(self.ours) == 0:
            shape = (shape[0] // len(self.ours), *shape[1:])
        return dict.fromkeys(self.ours, shape)

    def foreign_shape(self, ours: Mapping[str, Shape]) -> Shape:
        """The shape in the foreign file, from ours."""
        first = ours[self.ours[0]]
        whole = (len(self.ours) * first[0], *first[1:]) if len(self.ours) > 1 else first
        whole = whole[::-1] if self.transposed and len(whole) == 2 else whole
        return (*whole, 1, 1) if self.pointwise and len(whole) == 2 else whole

    def to_ours(self, tensor: Tensor) -> dict[str, Tensor]:
        """Our tensors, from the foreign one, which is only split: values do not change."""
        shape = next(iter(self.shapes(tuple(tensor.shape)).values()))
        tensor = tensor.t() if self.transposed and tensor.ndim == 2 else tensor
        parts = tensor.chunk(len(self.ours)) if len(self.ours) > 1 else (tensor,)
        return {
            name: part.reshape(shape).clone(memory_format=torch.contiguous_format)
            for name, part in zip(self.ours, parts, strict=True)
        }

    def to_foreign(self, tensors: Mapping[str, Tensor]) -> Tensor:
        """The foreign tensor, from ours."""
        parts = [tensors[name] for name in self.ours]
        whole = torch.cat(parts) if len(parts) > 1 else parts[0]
        whole = whole.t().contiguous() if self.transposed and whole.ndim == 2 else whole
        return whole.reshape(*whole.shape, 1, 1) if self.pointwise and whole.ndim == 2 else whole


class Table:
    """The names of one network, both ways. plain: maps a file's name to the name it is looked up by."""

    def __init__(self, entries: Iterable[Entry], plain: Spell = str) -> None:
        self.entries = tuple(entries)
        self._plain = plain
        self._by_foreign: dict[str, Entry] = {}
        self._by_ours: dict[str, Entry] = {}
        for entry in self.entries:
            for name in (entry.foreign, *entry.also):
                assert name not in self._by_foreign, f"{name} is the name of two tensors"
                self._by_foreign[name] = entry
            for name in entry.ours:
                assert name not in self._by_ours, f"{name} is mapped twice"
                self._by_ours[name] = entry

    def find_foreign(self, foreign: str) -> Entry | None:
        """The entry for a name in a foreign file, in any spelling; None when it is not part of this network."""
        return self._by_foreign.get(self._plain(foreign))

    def find_ours(self, ours: str) -> Entry | None:
        """The entry that contains one of our tensors."""
        return self._by_ours.get(ours)

    def match_names(self, names: Iterable[str]) -> dict[str, Entry]:
        """The names in a file that belong to this network, with their entries; of two spellings the canonical one."""
        chosen: dict[Entry, str] = {}
        for name in names:
            entry = self.find_foreign(name)
            if entry is not None and (entry not in chosen or name == entry.foreign):
                chosen[entry] = name
        return {name: entry for entry, name in chosen.items()}


@dataclass(frozen=True, slots=True)
class ComponentMap:
    """How a component is stored in a foreign file. start: the prefix of its names there. describe: makes the entries of
    a network from all our names; their foreign names lack the prefix. network: the component's network, by a name of
    `folder/components.py` or of its family. spell: the name as it is written, from prefix and entry. plain: the written
    name, from one that was read. activation: of the networks that are stored in this way, where others are stored
    differently."""

    start: str
    describe: Describe
    network: str
    spell: Spell = str
    plain: Spell = str
    activation: str = ""

    def table(self, names: Sequence[str]) -> Table:
        """The table of a network whose tensors have these names; it contains all of them."""
        table = Table((self._written(entry) for entry in self.describe(names)), self.plain)
        missing = [name for name in names if table.find_ours(name) is None]
        assert not missing, f"the layout does not map {missing[:3]}"
        return table

    def count(self, names: Iterable[str]) -> int:
        """How many of a file's names start with this component's prefix."""
        return sum(self.plain(name).startswith(self.start) for name in names)

    def _written(self, entry: Entry) -> Entry:
        also = tuple(self.spell(self.start + name) for name in entry.also)
        return replace(entry, foreign=self.spell(self.start + entry.foreign), also=also)


@dataclass(frozen=True, slots=True)
class KeyMap:
    """A layout of single files.

    family: the family of its models. parts: by component, the ways it may be stored; writing chooses by the component's
    configuration (`choose`), reading by the names in the file (`part_in`). extras: patterns of further names that such
    files may contain and no component needs. average_start: the prefix of averaged (EMA) copies, before the plain name;
    average_without_dots: whether the plain name then lacks its dots and `model.`. sign: a pattern that matches a name
    in such files and in no others. filled: scalars that readers expect besides our networks, with the default to write.
    suffix: of the files written in this layout. variants: the layouts of other models of the family.
    """

    name: str
    family: str
    parts: Mapping[str, tuple[ComponentMap, ...]]
    extras: tuple[str, ...]
    average_start: str = "ema."
    average_without_dots: bool = False
    sign: str = ""
    filled: Mapping[str, float] = field(default_factory=dict)
    suffix: str = ".safetensors"
    variants: tuple[KeyMap, ...] = ()

    @property
    def networks(self) -> dict[str, str]:
        """The networks of such a model, by component."""
        return {component: ways[0].network for component, ways in self.parts.items()}

    def choose(self, component: str, config: Mapping[str, Any]) -> ComponentMap:
        """How a component of this configuration is written."""
        ways = self.parts[component]
        return next((way for way in ways if way.activation == config.get("hidden_act")), ways[0])

    def average(self, name: str) -> str:
        """The averaged copy of a tensor of the denoiser, from its plain name."""
        plain = name.removeprefix("model.").replace(".", "") if self.average_without_dots else name
        return self.average_start + plain

    def is_extra(self, name: str) -> bool:
        """Whether a name matches `extras`: known, and not needed by any component."""
        return any(re.fullmatch(pattern, name) for pattern in self.extras)

    def part_in(self, component: str, names: Iterable[str]) -> ComponentMap | None:
        """How a file with these names stores a component, by the most matching names; None when it does not contain
        it."""
        names = tuple(names)
        counts = {part: part.count(names) for part in self.parts[component]}
        best = max(counts, key=lambda part: counts[part])
        return best if counts[best] else None

    def fits(self, names: Iterable[str]) -> bool:
        """Whether a file with these names contains all components, in this layout."""
        names = tuple(names)
        has_sign = not self.sign or any(re.search(self.sign, name) for name in names)
        return has_sign and all(self.part_in(component, names) is not None for component in self.parts)
