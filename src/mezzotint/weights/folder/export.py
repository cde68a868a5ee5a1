"""Writes a complete model folder: trained components with their new weights, everything else copied from the source."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from mezzotint.weights.folder import components, model_folder
from mezzotint.weights.folder.model_folder import ModelFolder


@dataclass(frozen=True, slots=True)
class Replaced:
    """A component with new weights. tensors: its full state, by its own names. keep_types: keep each tensor's data type
    instead of the export's."""

    network: components.Network
    tensors: Mapping[str, Tensor]
    config: Mapping[str, Any]
    keep_types: bool = False


def write_model(
    target: Path,
    source: ModelFolder,
    replaced: Mapping[str, Replaced],
    *,
    scheduler: Mapping[str, Any],
    dtype: components.DTypeName | None,
    besides: Callable[[Path], None] | None = None,
) -> None:
    """Writes `target`, which must not exist, atomically: to a temporary folder that is synced and renamed.

    replaced: by component. scheduler: the configuration to write. dtype: of replaced components; None keeps each
    tensor's. All other components are copied byte for byte. besides: writes further files into the folder.
    Raises WeightsError E1410 when `target` exists, E1403 for weights that are not finite, StorageError E1701.
    """
    with model_folder.new_folder(target) as folder:
        for component in source.components():
            _write_component(folder / component, source.root / component, replaced.get(component), scheduler, dtype)
        if besides is not None:
            besides(folder)
        model_folder.write_json(folder / "model_index.json", _index(source, scheduler))


def _write_component(
    target: Path, source: Path, new: Replaced | None, scheduler: Mapping[str, Any], dtype: components.DTypeName | None
) -> None:
    if new is not None:
        components.write(new.network, new.tensors, new.config, target, None if new.keep_types else dtype)
    elif source.name == "scheduler":
        model_folder.write_json(target / "scheduler_config.json", scheduler)
    else:
        model_folder.copy_component(source, target)
        if source.name.startswith("tokenizer"):
            model_folder.complete_tokenizer(target)


def _index(source: ModelFolder, scheduler: Mapping[str, Any]) -> dict[str, Any]:
    index = {k: v for k, v in source.index.items() if k != "_name_or_path"}
    if "_class_name" in scheduler:
        index["scheduler"] = ["diffusers", scheduler["_class_name"]]
    return index
