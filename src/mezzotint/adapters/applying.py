"""Adapters applied to a model while it is merged with overlay files, a few tensors at a time."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from mezzotint.adapters.files import Adapter
from mezzotint.adapters.merging import merge_adapters
from mezzotint.adapters.names import LayerName
from mezzotint.weights.merge import Merge


@dataclass(frozen=True, slots=True)
class AppliedAdapter:
    """An adapter among the sources of a merge. num_preceding: the number of other sources before it; it does not change
    tensors of later sources."""

    path: Path
    adapter: Adapter
    strength: float
    num_preceding: int


@dataclass(frozen=True)
class AdaptedMerge(Merge):
    """A merge with adapters. All adapters that change a tensor are added to the same weight, in any order."""

    adapters: tuple[AppliedAdapter, ...] = ()

    def values(self, component: str, names: Collection[str]) -> dict[str, Tensor]:
        """See Merge: computed in float32, returned in each tensor's dtype, or in float32 if a dtype is requested.
        Raises WeightsError E1416."""
        tensors = super().values(component, names)
        for number, source in enumerate((self.base.source, *self.others)):
            pairs = [(added.adapter, added.strength) for added in self.adapters if added.num_preceding >= number]
            selected = {name: t for name, t in tensors.items() if self.origin[component][name] is source}
            if self.dtype is not None:
                selected = {name: t.float() if t.is_floating_point() else t for name, t in selected.items()}
            tensors |= merge_adapters(component, selected, pairs)
        return tensors

    def find_changing(self, component: str, name: str) -> list[AppliedAdapter]:
        """The adapters that change a tensor."""
        source = self.origin[component][name]
        number = (self.base.source, *self.others).index(source)
        layer = LayerName(component, name.removesuffix(".weight")) if name.endswith(".weight") else None
        applied = [added for added in self.adapters if added.num_preceding >= number and added.strength]
        return [added for added in applied if layer in added.adapter.modules]

    def report(self) -> Iterator[str]:
        """See Merge."""
        yield from super().report()
        for added in self.adapters:
            counts = {
                c: sum(added in self.find_changing(c, name) for name in names) for c, names in self.origin.items()
            }
            layers = ", ".join(f"{count} layers of {component}" for component, count in counts.items() if count)
            yield f"{added.path}: strength {added.strength:g}, in {layers or 'no layer (replaced, or strength 0)'}"
            yield from (f"{added.path}: {note}" for note in added.adapter.notes)

    def keys(self) -> dict[str, dict[str, str]]:
        """See Merge; after a tensor's source come the adapters that change it."""
        return {
            component: {
                name: " + ".join([origin, *(f"{e.strength:g} · {e.path}" for e in self.find_changing(component, name))])
                for name, origin in origins.items()
            }
            for component, origins in super().keys().items()
        }
