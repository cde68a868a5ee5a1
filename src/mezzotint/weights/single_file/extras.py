"""The content of a single file besides its model, kept in a model folder so that converting back is exact.

The folder `single_file/` of a model folder: `rest.safetensors` (schedule buffers, layers that no reader needs, unknown
tensors), `average.safetensors` (the averaged denoiser, if requested) and `layout.json` (spellings that differ from
ours, metadata of the header). Readers of model folders ignore it.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from mezzotint.weights.files import tensor_files
from mezzotint.weights.folder.model_folder import read_json, write_json
from mezzotint.weights.single_file.single_file import SingleFile

FOLDER = "single_file"
_REST, _AVERAGE, _LAYOUT = "rest.safetensors", "average.safetensors", "layout.json"


@dataclass(frozen=True, slots=True)
class Extras:
    """rest: tensors by the names of the single file. averages: the same for the averaged denoiser. spellings: by
    canonical name, the name and shape in the file. metadata: of the header. layout: the name of the file's layout."""

    rest: Mapping[str, Tensor] = field(default_factory=dict)
    averages: Mapping[str, Tensor] = field(default_factory=dict)
    spellings: Mapping[str, tuple[str, tuple[int, ...]]] = field(default_factory=dict)
    metadata: Mapping[str, str] = field(default_factory=dict)
    layout: str = ""

    def write(self, root: Path) -> None:
        """Writes them into a model folder; writes nothing when all are empty."""
        metadata = {k: v for k, v in self.metadata.items() if k != "format"}
        if not (self.rest or self.averages or self.spellings or metadata):
            return
        shutil.rmtree(root / FOLDER, ignore_errors=True)
        (root / FOLDER).mkdir()
        for name, tensors in ((_REST, self.rest), (_AVERAGE, self.averages)):
            if tensors:
                tensor_files.write(tensors, root / FOLDER / name, unchecked=tuple(tensors))
        table = {"spellings": {k: [name, list(shape)] for k, (name, shape) in self.spellings.items()}}
        write_json(root / FOLDER / _LAYOUT, {"layout": self.layout} | table | {"metadata": metadata})


def extras_of(single: SingleFile, *, averages: bool = False) -> Extras:
    """The content of an open file besides its model. averages: include the averaged copy, which is as large as the
    denoiser."""
    unmapped = single.unmapped
    rest = (*unmapped.extras, *unmapped.unknown)
    averaged = unmapped.averages if averages else ()
    return Extras(
        tensor_files.read(single.file, rest, unchecked=rest),
        tensor_files.read(single.file, averaged, unchecked=averaged),
        single.spellings(),
        single.metadata,
        single.layout.name,
    )


def read_extras(root: Path) -> Extras:
    """The extras in a model folder; empty if it has none. Raises WeightsError for damaged files."""
    folder = root / FOLDER
    if not (folder / _LAYOUT).is_file():
        return Extras()
    table = read_json(folder / _LAYOUT)
    tensors = {}
    for name in (_REST, _AVERAGE):
        path = folder / name
        present = tuple(tensor_files.read_header(path)) if path.is_file() else ()
        tensors[name] = tensor_files.read(path, present, unchecked=present) if present else {}
    metadata = dict(table.get("metadata", {}))
    return Extras(tensors[_REST], tensors[_AVERAGE], _spellings(table), metadata, str(table.get("layout", "sd")))


def drop_average(root: Path) -> None:
    """Removes the averaged copy from a folder whose denoiser has been trained since: it would be another model's."""
    (root / FOLDER / _AVERAGE).unlink(missing_ok=True)


def _spellings(table: Mapping[str, Any]) -> dict[str, tuple[str, tuple[int, ...]]]:
    return {k: (str(name), tuple(map(int, shape))) for k, (name, shape) in table.get("spellings", {}).items()}
