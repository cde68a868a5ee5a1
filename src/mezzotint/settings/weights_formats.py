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
"""Suffixes under which pickled weights are found. They are read and never written."""
START = 8192
"""Bytes of a file's start by which its format is recognised."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightsFormatSpec:
    """The facts of a format. suffix: of the files that are written, such as ".ckpt". recognises: whether a file that
    begins with these bytes, at most `START`, is of the format, whatever its suffix. unreadable: first bytes of files
    that cannot be read, with what the error says of them, in which `{size}` stands for their bytes."""

    suffix: str
    recognises: Callable[[bytes], bool]
    unreadable: tuple[tuple[tuple[bytes, ...], str], ...] = ()


def names() -> tuple[str, ...]:
    """All formats in which weights are written. No module is imported."""
    return (SAFETENSORS, *registry.names(FOLDER))


def specs() -> dict[str, WeightsFormatSpec]:
    """The registered formats by name; safetensors is not one of them."""
    return {name: registry.find(FOLDER, name).SPEC for name in registry.names(FOLDER)}


def suffix_of(name: str) -> str:
    """The suffix of files in a format. Raises RecipeError E1010 with the nearest name when there is no such format."""
    spec: WeightsFormatSpec | None = None if name == SAFETENSORS else registry.find(FOLDER, name).SPEC
    return ".safetensors" if spec is None else spec.suffix


def suffixes() -> tuple[str, ...]:
    """The suffixes of all formats in which weights are written."""
    return (".safetensors", *(spec.suffix for spec in specs().values()))


def readable_suffixes() -> tuple[str, ...]:
    """The suffixes under which a model in one file is opened."""
    return tuple(dict.fromkeys((".safetensors", *PICKLED, *suffixes())))
