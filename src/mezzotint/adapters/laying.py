"""Adapters laid into a whole model as it is merged, a few tensors at a time, among files that are laid over it."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from mezzotint.adapters.files import Adapter
from mezzotint.adapters.merging import merged
from mezzotint.adapters.names import LayerName
from mezzotint.weights.merge import Merge


@dataclass(frozen=True, slots=True)
class LaidAdapter:
    """An adapter among the sources of a merge. behind: how many of the others stand before it; a tensor that a later
    source brings is not changed by it."""

    path: Path
    adapter: Adapter
    strength: float
    behind: int


@dataclass(frozen=True)
class AdaptedMerge(Merge):
    """A merge with adapters. All that change a tensor are added to the same weight, so that their order is free."""

    adapters: tuple[LaidAdapter, ...] = ()

    def values(self, component: str, names: Collection[str]) -> dict[str, Tensor]:
        """See Merge: sums in float32, in each tensor's own type, or in float32 for the type that was asked for. Raises
        WeightsError E1416."""
        tensors = super().values(component, names)
        for number, source in enumerate((self.base.source, *self.others)):
            laid = [(each.adapter, each.strength) for each in self.adapters if each.behind >= number]
            mine = {name: t for name, t in tensors.items() if self.origin[component][name] is source}
            if self.dtype is not None:
                mine = {name: t.float() if t.is_floating_point() else t for name, t in mine.items()}
            tensors |= merged(component, mine, laid)
        return tensors

    def changing(self, component: str, name: str) -> list[LaidAdapter]:
        """The adapters that change a tensor."""
        source = self.origin[component][name]
        number = (self.base.source, *self.others).index(source)
        layer = LayerName(component, name.removesuffix(".weight")) if name.endswith(".weight") else None
        laid = [each for each in self.adapters if each.behind >= number and each.strength]
        return [each for each in laid if layer in each.adapter.modules]

    def report(self) -> Iterator[str]:
        """See Merge."""
        yield from super().report()
        for each in self.adapters:
            counts = {c: sum(each in self.changing(c, name) for name in names) for c, names in self.origin.items()}
            what = ", ".join(f"{count} layers of {component}" for component, count in counts.items() if count)
            yield f"{each.path}: {each.strength:g} of it in {what or 'no layer (replaced, or no strength)'}"
            yield from (f"{each.path}: {note}" for note in each.adapter.notes)

    def keys(self) -> dict[str, dict[str, str]]:
        """See Merge; behind a tensor's place the adapters that change it."""
        return {
            component: {
                name: " + ".join([place, *(f"{e.strength:g} · {e.path}" for e in self.changing(component, name))])
                for name, place in places.items()
            }
            for component, places in super().keys().items()
        }
