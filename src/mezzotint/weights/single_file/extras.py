"""What a single file has besides its model, carried along in a model folder so that the way back is exact.

The folder `single_file/` of a model folder: `rest.safetensors` (schedule buffers, layers that no reader needs, tensors
nobody knows), `average.safetensors` (the averaged denoiser, when asked for) and `layout.json` (spellings that differ
from ours, words of the header). Readers of model folders pass it over.
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
    """rest: tensors by the names of the single file. averages: likewise, of the averaged denoiser. spellings: by proper
    name, the name and shape it had. metadata: the header's words. layout: the file's, by name."""

    rest: Mapping[str, Tensor] = field(default_factory=dict)
    averages: Mapping[str, Tensor] = field(default_factory=dict)
    spellings: Mapping[str, tuple[str, tuple[int, ...]]] = field(default_factory=dict)
    metadata: Mapping[str, str] = field(default_factory=dict)
    layout: str = ""

    def write(self, root: Path) -> None:
        """Writes them into a model folder; nothing when there is nothing to keep."""
        words = {k: v for k, v in self.metadata.items() if k != "format"}
        if not (self.rest or self.averages or self.spellings or words):
            return
        shutil.rmtree(root / FOLDER, ignore_errors=True)
        (root / FOLDER).mkdir()
        for name, tensors in ((_REST, self.rest), (_AVERAGE, self.averages)):
            if tensors:
                tensor_files.write(tensors, root / FOLDER / name, unchecked=tuple(tensors))
        table = {"spellings": {k: [name, list(shape)] for k, (name, shape) in self.spellings.items()}}
        write_json(root / FOLDER / _LAYOUT, {"layout": self.layout} | table | {"metadata": words})


def extras_of(single: SingleFile, *, averages: bool = False) -> Extras:
    """What an open file has besides its model. averages: the averaged copy, too, which is as large as it."""
    besides = single.besides
    rest = (*besides.extras, *besides.unknown)
    kept = besides.averages if averages else ()
    return Extras(
        tensor_files.read(single.file, rest, unchecked=rest),
        tensor_files.read(single.file, kept, unchecked=kept),
        single.spellings(),
        single.metadata,
        single.layout.name,
    )


def read_extras(root: Path) -> Extras:
    """What a model folder carries along; nothing where it has no such folder. Raises WeightsError for damaged files."""
    folder = root / FOLDER
    if not (folder / _LAYOUT).is_file():
        return Extras()
    table = read_json(folder / _LAYOUT)
    tensors = {}
    for name in (_REST, _AVERAGE):
        path = folder / name
        present = tuple(tensor_files.read_header(path)) if path.is_file() else ()
        tensors[name] = tensor_files.read(path, present, unchecked=present) if present else {}
    words = dict(table.get("metadata", {}))
    return Extras(tensors[_REST], tensors[_AVERAGE], _spellings(table), words, str(table.get("layout", "sd")))


def drop_average(root: Path) -> None:
    """Takes the averaged copy out of a folder whose denoiser has been trained since: it would be another model's."""
    (root / FOLDER / _AVERAGE).unlink(missing_ok=True)


def _spellings(table: Mapping[str, Any]) -> dict[str, tuple[str, tuple[int, ...]]]:
    return {k: (str(name), tuple(map(int, shape))) for k, (name, shape) in table.get("spellings", {}).items()}
