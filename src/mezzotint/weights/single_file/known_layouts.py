"""Chooses the layout of a single file among those in `layouts/`, for reading and for writing."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path

from mezzotint import registry
from mezzotint.errors import WeightsError
from mezzotint.weights.keymap import KeyMap

FOLDER = "weights/layouts"


def all_layouts() -> Iterator[KeyMap]:
    """All layouts of single files, those with a `sign` first, so that the first match is the right one. Excludes
    layouts of standalone component files, whose names have no prefix."""
    layouts: list[KeyMap] = []
    for name in registry.names(FOLDER):
        layout: KeyMap = registry.find(FOLDER, name).LAYOUT
        if all(way.start for ways in layout.parts.values() for way in ways):
            layouts += [layout, *layout.variants]
    return iter(sorted(layouts, key=lambda layout: not layout.sign))


def of_names(names: Collection[str], family: str | None = None) -> KeyMap | None:
    """The layout of a file with these names; None when no layout of the family (None: any) has all its components."""
    return next((layout for layout in all_layouts() if family in (None, layout.family) and layout.fits(names)), None)


def for_components(components: Collection[str], suffix: str = ".safetensors") -> KeyMap | None:
    """The layout for writing a model of these components to a file with this suffix; of several, the one that most
    programs read: the one without a `sign`."""
    matches = (one for one in all_layouts() if one.parts.keys() == set(components) and one.suffix == suffix)
    return min(matches, key=lambda layout: bool(layout.sign), default=None)


def require_for(components: Collection[str], target: Path, source: Path) -> KeyMap:
    """The layout for writing `source`, a model of these components, to the file `target`. Raises WeightsError E1406
    when there is no layout for it with this suffix."""
    layout = for_components(components, target.suffix)
    if layout is None:
        others = ", ".join(families(target.suffix)) or "none"
        raise WeightsError(
            f"{source}: has {', '.join(components)}; only models of family {others} can be written as "
            f"{target.suffix} files; use a name that ends in .safetensors",
            code="E1406",
        )
    return layout


def families(suffix: str) -> tuple[str, ...]:
    """The families whose models can be written as files with this suffix."""
    return tuple(sorted({layout.family for layout in all_layouts() if layout.suffix == suffix}))


def component_names() -> frozenset[str]:
    """The components of all layouts."""
    return frozenset(component for layout in all_layouts() for component in layout.parts)
