"""Formats of weights files besides safetensors.

A module of the group `mezzotint.weights.formats` reads and writes one format and implements `WeightsFormat`; its
properties are in `settings/weights_formats.py`. Reading recognises a file by its first bytes, for any suffix; writing
chooses the format by the suffix.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Protocol, cast

from torch import Tensor

from mezzotint import outside, registry
from mezzotint.settings import weights_formats
from mezzotint.weights.files.spans import StoredTensor

FOLDER = "weights/formats"


class WeightsFormat(Protocol):
    """Reads and writes files of one format."""

    def read_header(self, path: Path) -> dict[str, StoredTensor]:
        """The tensors of a file by name, without reading their values. Raises WeightsError."""

    def read_metadata(self, path: Path) -> dict[str, str]:
        """The text metadata of a file, {} if the format has none. Raises WeightsError."""

    def read(self, path: Path, names: Collection[str]) -> Iterator[tuple[str, Tensor]]:
        """The named tensors, in their stored data types. Each owns its memory. Raises WeightsError."""

    def write(self, path: Path, tensors: Iterable[tuple[str, Tensor]]) -> None:
        """Writes a file that replaces `path` when it is complete. `tensors` may be a generator. Raises WeightsError for
        a data type that the format does not support, StorageError."""


def name_at(path: Path) -> str | None:
    """The registered format of a file; None for safetensors, for other files, and for files that cannot be opened."""
    specs = weights_formats.specs()
    if not specs:
        return None
    try:
        with outside.open_plain(path) as file:
            start = file.read(weights_formats.START)
    except OSError:
        return None
    return next((name for name, spec in specs.items() if spec.recognises(start)), None)


def format_at(path: Path) -> WeightsFormat | None:
    """The registered format of a file; None as `name_at`."""
    name = name_at(path)
    return None if name is None else cast(WeightsFormat, registry.find(FOLDER, name))


def format_for(path: Path) -> WeightsFormat | None:
    """The registered format for writing a file of this suffix; None for safetensors and all other suffixes."""
    specs = weights_formats.specs().items()
    name = next((name for name, spec in specs if spec.suffix == path.suffix), None)
    return None if name is None else cast(WeightsFormat, registry.find(FOLDER, name))
