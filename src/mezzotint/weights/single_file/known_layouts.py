"""Which layout a single file has, or will have: chosen among those in `layouts/`."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path

from mezzotint import registry
from mezzotint.errors import WeightsError
from mezzotint.weights.keymap import KeyMap

FOLDER = "weights/layouts"


def every() -> Iterator[KeyMap]:
    """All layouts of single files, those with a sign of their own first, so that the first that fits is the right one.
    One whose parts stand in files of their own, without a start, is none of these."""
    layouts: list[KeyMap] = []
    for name in registry.names(FOLDER):
        layout: KeyMap = registry.find(FOLDER, name).LAYOUT
        if all(way.start for ways in layout.parts.values() for way in ways):
            layouts += [layout, *layout.variants]
    return iter(sorted(layouts, key=lambda layout: not layout.sign))


def of_names(names: Collection[str], family: str | None = None) -> KeyMap | None:
    """The layout of a file with these names; None when no layout of the family (None: of any) has all its parts."""
    return next((lay for lay in every() if family in (None, lay.family) and lay.fits(names)), None)


def for_components(components: Collection[str], suffix: str = ".safetensors") -> KeyMap | None:
    """The layout in which a model of these components is written to a file with this ending; of several the one that
    most programs read, without a sign."""
    fitting = (lay for lay in every() if lay.parts.keys() == set(components) and lay.suffix == suffix)
    return min(fitting, key=lambda layout: bool(layout.sign), default=None)


def require_for(components: Collection[str], target: Path, source: Path) -> KeyMap:
    """The layout in which `source`, a model of these components, is written to the file `target`. Raises WeightsError
    E1406 when files with this suffix have no layout for it."""
    layout = for_components(components, target.suffix)
    if layout is None:
        others = ", ".join(families(target.suffix)) or "none"
        raise WeightsError(
            f"{source}: has {', '.join(components)}; only models of family {others} are written as {target.suffix} "
            "files, write a name that ends in .safetensors",
            code="E1406",
        )
    return layout


def families(suffix: str) -> tuple[str, ...]:
    """The families whose models are written as files with this suffix."""
    return tuple(sorted({layout.family for layout in every() if layout.suffix == suffix}))


def component_names() -> frozenset[str]:
    """All components that any layout keeps."""
    return frozenset(component for layout in every() for component in layout.parts)
