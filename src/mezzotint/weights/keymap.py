"""Two names for one tensor: maps between our names (diffusers') and those of another program's file, both ways.

A layout says how a tensor of ours is called there. Bound to the names of a network it makes a table, and a table is
checked when it is made: no name twice, on either side. So what is read is what would be written.
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

    foreign: its name there, as it is written. ours: the tensors it holds, joined along the first axis; nearly always
    one. pointwise: a linear layer that is kept there as a convolution of one pixel, (O, I, 1, 1). also: other names
    under which files are met. transposed: a matrix whose rows are our columns.
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
        """Our tensors, from the foreign one. Its values are only parted, never changed."""
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
    """The names of one network, both ways. plain: the name that a file's name is looked up by."""

    def __init__(self, entries: Iterable[Entry], plain: Spell = str) -> None:
        self.entries = tuple(entries)
        self._plain = plain
        self._by_foreign: dict[str, Entry] = {}
        self._by_ours: dict[str, Entry] = {}
        for entry in self.entries:
            for name in (entry.foreign, *entry.also):
                assert name not in self._by_foreign, f"{name} stands for two tensors"
                self._by_foreign[name] = entry
            for name in entry.ours:
                assert name not in self._by_ours, f"{name} has two places"
                self._by_ours[name] = entry

    def reads(self, foreign: str) -> Entry | None:
        """The entry behind a name in a foreign file, in any spelling; None when it is not of this network."""
        return self._by_foreign.get(self._plain(foreign))

    def holds(self, ours: str) -> Entry | None:
        """The entry that holds a tensor of ours."""
        return self._by_ours.get(ours)

    def present(self, names: Iterable[str]) -> dict[str, Entry]:
        """Those of a file's names that are of this network, with their entries; of two spellings the proper one."""
        chosen: dict[Entry, str] = {}
        for name in names:
            entry = self.reads(name)
            if entry is not None and (entry not in chosen or name == entry.foreign):
                chosen[entry] = name
        return {name: entry for entry, name in chosen.items()}


@dataclass(frozen=True, slots=True)
class ComponentMap:
    """How a component is kept in a foreign file. start: what all its names begin with there. describe: the entries of
    a network, from all our names; their foreign names come without the start. network: what the component is, by a name
    of `folder/components.py` or its family's own. spell:
    the name as it is written, from the one that start and entry make. plain: the written name of one that is met.
    activation: of the networks that are kept in this way, where others are kept otherwise."""

    start: str
    describe: Describe
    network: str
    spell: Spell = str
    plain: Spell = str
    activation: str = ""

    def table(self, names: Sequence[str]) -> Table:
        """The table of a network whose tensors have these names; it holds every one of them."""
        table = Table((self._written(entry) for entry in self.describe(names)), self.plain)
        lacking = [name for name in names if table.holds(name) is None]
        assert not lacking, f"the layout has no place for {lacking[:3]}"
        return table

    def count(self, names: Iterable[str]) -> int:
        """How many of a file's names begin as this part's do."""
        return sum(self.plain(name).startswith(self.start) for name in names)

    def _written(self, entry: Entry) -> Entry:
        also = tuple(self.spell(self.start + name) for name in entry.also)
        return replace(entry, foreign=self.spell(self.start + entry.foreign), also=also)


@dataclass(frozen=True, slots=True)
class KeyMap:
    """A layout of single files.

    family: the models that it is for. parts: by component, the ways it is kept; which of them, the component's
    configuration says for writing (`choose`) and the names at hand for reading (`part_in`). extras: patterns of names
    that such files may have besides, which no component needs. average_start: what names of averaged copies begin with,
    before the plain name; average_without_dots: which then has lost its dots and `model.`. sign: a pattern that some
    name has in such files and in no others. filled: what its readers ask for beyond our networks, with the number to be
    written when nothing better is at hand. suffix: of the files that are written so. variants: the same for other
    models of the family.
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
        """The way in which a component of this configuration is written."""
        ways = self.parts[component]
        return next((way for way in ways if way.activation == config.get("hidden_act")), ways[0])

    def average(self, name: str) -> str:
        """The averaged copy of a tensor of the denoiser, from its plain name."""
        plain = name.removeprefix("model.").replace(".", "") if self.average_without_dots else name
        return self.average_start + plain

    def is_extra(self, name: str) -> bool:
        """Whether a name is known as something that no component needs."""
        return any(re.fullmatch(pattern, name) for pattern in self.extras)

    def part_in(self, component: str, names: Iterable[str]) -> ComponentMap | None:
        """The way in which a file with these names keeps a component, by most of them; None when it has nothing of
        it."""
        names = tuple(names)
        counts = {part: part.count(names) for part in self.parts[component]}
        best = max(counts, key=lambda part: counts[part])
        return best if counts[best] else None

    def fits(self, names: Iterable[str]) -> bool:
        """Whether a file with these names has all components, as this layout keeps them."""
        names = tuple(names)
        signed = not self.sign or any(re.search(self.sign, name) for name in names)
        return signed and all(self.part_in(component, names) is not None for component in self.parts)
