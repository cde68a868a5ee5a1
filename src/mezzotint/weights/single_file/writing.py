"""Writes single files: tensors besides the networks, spelling of names, description, and casts."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from mezzotint.errors import WeightsError
from mezzotint.weights.files import formats, tensor_files
from mezzotint.weights.folder import components
from mezzotint.weights.folder.components import DTYPES, DTypeName
from mezzotint.weights.folder.export import Replaced
from mezzotint.weights.folder.model_folder import ModelFolder
from mezzotint.weights.keymap import KeyMap
from mezzotint.weights.single_file import modelspec
from mezzotint.weights.single_file.extras import Extras
from mezzotint.weights.single_file.modelspec import Description

_MODEL = ("model.", "model_ema.", "cond_stage_model.", "conditioner.", "first_stage_model.")


def describe_folder(folder: ModelFolder, prediction: str, title: str) -> Description:
    """The description of a model folder, from its configurations."""
    unet, vae = folder.config("unet"), folder.config("vae")
    pixels = 2 ** (len(vae.get("block_out_channels", (1,) * 4)) - 1)
    sample = unet.get("sample_size", 64)
    side = int(sample[0] if isinstance(sample, list) else sample)
    return Description(_version(folder), prediction, side * pixels, title)


def _version(folder: ModelFolder) -> modelspec.Version:
    if folder.has("text_encoder_2"):
        return "xl-base" if folder.has("text_encoder") else "xl-refiner"
    # OpenCLIP uses the exact gelu, CLIP an approximation
    return "2" if folder.config("text_encoder").get("hidden_act") == "gelu" else "1"


def other_tensors(layout: KeyMap, extras: Extras) -> dict[str, Tensor]:
    """The tensors of a single file besides its networks. extras: of the file that the model came from."""
    is_same = extras.layout == layout.name
    others: dict[str, Tensor] = {name: torch.tensor(value) for name, value in layout.filled.items()}
    others |= {name: tensor for name, tensor in extras.rest.items() if is_same or not layout.sign or name in others}
    return others | (dict(extras.averages) if is_same else {})


def spelling(layout: KeyMap, extras: Extras, written: tuple[str, tuple[int, ...]]) -> tuple[str, tuple[int, ...]]:
    """Name and shape of a tensor, as the file that the model came from spells them."""
    return extras.spellings.get(written[0], written) if extras.layout == layout.name else written


def cast(path: Path, tensors: Mapping[str, Tensor], dtype: DTypeName) -> dict[str, Tensor]:
    """Casts the networks' tensors of a single file; schedules and counters keep their data types.

    Raises WeightsError E1416 when a value is too large for it.
    """
    narrowed = dict(tensors)
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and tensor.ndim and name.startswith(_MODEL) and not _is_schedule(name):
            narrowed[name] = _narrow(path, name, tensor, dtype)
    return narrowed


def cast_component(path: Path, tensors: Mapping[str, Tensor], dtype: DTypeName) -> dict[str, Tensor]:
    """Casts the tensors of a component. Raises as `cast`."""
    return {name: _narrow(path, name, t, dtype) if t.is_floating_point() else t for name, t in tensors.items()}


def write_components(target: Path, layout: KeyMap, replaced: Mapping[str, Replaced], dtype: DTypeName) -> None:
    """Writes only the trained components of a model as one file, under their names in a complete checkpoint.
    `mezzotint merge` merges such a file into the model it was trained from.

    The suffix chooses the format, see `formats`. An existing file is replaced when the new one is complete. replaced:
    by component. Raises WeightsError E1403 for weights that are not finite, E1416 for values too large for the data
    type, StorageError E1701.
    """
    tensors: dict[str, Tensor] = {}
    for component, new in replaced.items():
        ours = components.modern_names(new.network, new.tensors)
        for entry in layout.choose(component, new.config).table(list(ours)).entries:
            tensors[entry.foreign] = entry.to_foreign(ours)
    tensors = cast(target, tensors, dtype)
    other = formats.format_for(target)
    if other is not None:
        tensor_files.require_finite(target, tensors)
        other.write(target, tensors.items())
    else:
        tensor_files.write(tensors, target)


def _narrow(path: Path, name: str, tensor: Tensor, dtype: DTypeName) -> Tensor:
    narrow = tensor.to(DTYPES[dtype])
    tensor = tensor.float() if tensor.element_size() == 1 else tensor  # torch has few operations on 8-bit types
    if bool(torch.isfinite(tensor).all()) and not bool(torch.isfinite(narrow).all()):
        largest = float(tensor.abs().max())
        raise WeightsError(
            f"{path}: {name} has a value of size {largest:g}, too large for {dtype}; use bf16 or fp32", code="E1416"
        )
    return narrow


def _is_schedule(name: str) -> bool:
    return name.startswith("model.") and not name.startswith("model.diffusion_model.")
