"""Formats of weights files: safetensors and those that are registered, with their suffixes and first bytes. No torch.

A module of the group `mezzotint.settings.weights_formats` adds one with `SPEC`; the module of the same name in the
group `mezzotint.weights.formats` reads and writes its files, see `weights/files/formats.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from mezzotint import registry

FOLDER = "settings/weights_formats"
SAFETENSORS = "safetensors"
PICKLED = (".ckpt", ".pt", ".pth", ".bin")
"""Suffixes of pickled weights, which are read and never written."""
START = 8192
"""How many bytes at the start of a file identify its format."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightsFormatSpec:
    """The facts of a format. suffix: of written files, such as ".ckpt". recognises: whether a file that starts with
    these bytes, at most `START`, has the format, whatever its suffix. unreadable: first bytes of files that cannot be
    read, with the error message; `{size}` in it is their number of bytes."""

    suffix: str
    recognises: Callable[[bytes], bool]
    unreadable: tuple[tuple[tuple[bytes, ...], str], ...] = ()


def names() -> tuple[str, ...]:
    """All formats that weights can be written in. No module is imported."""
    return (SAFETENSORS, *registry.names(FOLDER))


def specs() -> dict[str, WeightsFormatSpec]:
    """The registered formats by name; safetensors is not one of them."""
    return {name: registry.find(FOLDER, name).SPEC for name in registry.names(FOLDER)}


def suffix_of(name: str) -> str:
    """The file suffix of a format. Raises RecipeError E1010 with the nearest name for an unknown one."""
    spec: WeightsFormatSpec | None = None if name == SAFETENSORS else registry.find(FOLDER, name).SPEC
    return ".safetensors" if spec is None else spec.suffix


def suffixes() -> tuple[str, ...]:
    """The suffixes of all formats that weights can be written in."""
    return (".safetensors", *(spec.suffix for spec in specs().values()))


def readable_suffixes() -> tuple[str, ...]:
    """The suffixes of single-file models that can be opened."""
    return tuple(dict.fromkeys((".safetensors", *PICKLED, *suffixes())))
