"""Some components of a model as one file, under the names that they have in a whole single file: what is trained,
without the rest. `mezzotint merge` lays such a file over the model it was trained from."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from torch import Tensor

from mezzotint.weights.files import mindspore, tensor_files
from mezzotint.weights.folder import components
from mezzotint.weights.folder.components import DTypeName
from mezzotint.weights.folder.export import Replaced
from mezzotint.weights.keymap import KeyMap
from mezzotint.weights.single_file import writing


def write(target: Path, layout: KeyMap, replaced: Mapping[str, Replaced], dtype: DTypeName) -> None:
    """Writes the file: `.ckpt` is MindSpore's checkpoint, all else is safetensors. One that is there is replaced when
    the new one is whole. replaced: by component.

    Raises WeightsError E1403 for weights that are not finite, E1416 for what is too large for the type, StorageError
    E1701.
    """
    found: dict[str, Tensor] = {}
    for component, new in replaced.items():
        tensors = components.modern_names(new.network, new.tensors)
        for entry in layout.choose(component, new.config).table(list(tensors)).entries:
            found[entry.foreign] = entry.to_foreign(tensors)
    found = writing.cast(target, found, dtype)
    if target.suffix == mindspore.SUFFIX:
        tensor_files.require_finite(target, found)
        mindspore.write(target, found)
    else:
        tensor_files.write(found, target)
