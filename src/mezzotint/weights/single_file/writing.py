"""Writes a whole model as one file: the components under the names of its layout, and a header that describes it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mezzotint.errors import WeightsError
from mezzotint.weights.files import mindspore, tensor_files
from mezzotint.weights.folder import components
from mezzotint.weights.folder.components import DTYPES, DTypeName
from mezzotint.weights.folder.model_folder import ModelFolder
from mezzotint.weights.keymap import KeyMap
from mezzotint.weights.single_file import modelspec
from mezzotint.weights.single_file.extras import Remains

_MODEL = ("model.", "model_ema.", "cond_stage_model.", "conditioner.", "first_stage_model.")


@dataclass(frozen=True, slots=True)
class Description:
    """What the header says. version: of Stable Diffusion. prediction: "epsilon" or "v". resolution: in pixels."""

    version: modelspec.Version
    prediction: str
    resolution: int
    title: str

    def metadata(self, before: Mapping[str, str]) -> dict[str, str]:
        """The header's entries, with those that were there before and are not of the specification."""
        others = {k: v for k, v in before.items() if not k.startswith("modelspec.") and k != "format"}
        kind = modelspec.architecture(self.version, self.prediction)
        return others | modelspec.describe(
            architecture=kind,
            prediction=self.prediction,
            resolution=self.resolution,
            title=self.title,
            source=before,
        )


def described(folder: ModelFolder, prediction: str, title: str) -> Description:
    """A description by the configurations of a model folder."""
    unet, vae = folder.config("unet"), folder.config("vae")
    pixels = 2 ** (len(vae.get("block_out_channels", (1,) * 4)) - 1)
    sample = unet.get("sample_size", 64)
    side = int(sample[0] if isinstance(sample, list) else sample)
    return Description(_version(folder), prediction, side * pixels, title)


def _version(folder: ModelFolder) -> modelspec.Version:
    if folder.has("text_encoder_2"):
        return "xl-base" if folder.has("text_encoder") else "xl-refiner"
    # the exact gelu is OpenCLIP's; CLIP has an approximation of it
    return "2" if folder.config("text_encoder").get("hidden_act") == "gelu" else "1"


def assemble(
    layout: KeyMap,
    folder: ModelFolder,
    tensors: Mapping[str, Mapping[str, Tensor]],
    remains: Remains,
) -> dict[str, Tensor]:
    """All tensors of a single file. tensors: by component, under our names. Values are laid out, never changed.

    Spellings and averaged copies of a file in another layout do not travel.

    Raises WeightsError E1405 when they are not those that the folder's configurations describe.
    """
    found = around(layout, remains)
    for component, network in layout.networks.items():
        config = folder.config(component)
        where = folder.root / component
        shapes = components.shapes(network, config, where=where / "config.json")
        require_fit(where, shapes, tensors[component])
        for entry in layout.choose(component, config).table(list(shapes)).entries:
            whole = entry.to_foreign(tensors[component])
            name, shape = spelling(layout, remains, (entry.foreign, tuple(whole.shape)))
            found[name] = whole.reshape(shape)
    return found


def around(layout: KeyMap, remains: Remains) -> dict[str, Tensor]:
    """What a single file holds besides its networks. remains: of the file that the model came from."""
    same = remains.layout == layout.name
    found: dict[str, Tensor] = {name: torch.tensor(value) for name, value in layout.filled.items()}
    found |= {name: tensor for name, tensor in remains.rest.items() if same or not layout.sign or name in found}
    return found | (dict(remains.averages) if same else {})


def spelling(layout: KeyMap, remains: Remains, written: tuple[str, tuple[int, ...]]) -> tuple[str, tuple[int, ...]]:
    """Name and shape of a tensor in a file, as the file wrote it that the model came from."""
    return remains.spellings.get(written[0], written) if remains.layout == layout.name else written


def write(target: Path, tensors: Mapping[str, Tensor], description: Description, before: Mapping[str, str]) -> None:
    """Writes the file: `.ckpt` is MindSpore's checkpoint, which has no place for words; all else is safetensors.

    before: the header's words of where the model came from. Raises WeightsError E1403 for networks that are not finite,
    StorageError E1701.
    """
    lenient = tuple(name for name in tensors if not name.startswith(_MODEL[2:]) and "diffusion_model" not in name)
    if target.suffix == mindspore.SUFFIX:
        tensor_files.require_finite(target, tensors, unchecked=lenient)
        mindspore.write(target, tensors)
        return
    tensor_files.write(tensors, target, description.metadata(before), unchecked=lenient, seal=modelspec.seal)


def cast(place: Path, tensors: Mapping[str, Tensor], dtype: DTypeName) -> dict[str, Tensor]:
    """The numbers of a single file's networks in another type; schedules and counters keep theirs.

    Raises WeightsError E1416 when a value is too large for it.
    """
    found = dict(tensors)
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and tensor.ndim and name.startswith(_MODEL) and not _is_schedule(name):
            found[name] = _narrowed(place, name, tensor, dtype)
    return found


def cast_component(place: Path, tensors: Mapping[str, Tensor], dtype: DTypeName) -> dict[str, Tensor]:
    """The numbers of a component in another type. Raises as `cast`."""
    return {name: _narrowed(place, name, t, dtype) if t.is_floating_point() else t for name, t in tensors.items()}


def require_fit(where: Path, wanted: Mapping[str, Any], found: Mapping[str, Tensor]) -> None:
    """Raises WeightsError E1405, with counts and names, when tensors are not those of a component's configuration."""
    told = [
        f"{word}: {tensor_files.some(names, 3)}"
        for word, names in (
            ("missing", [n for n in wanted if n not in found]),
            ("unexpected", [n for n in found if n not in wanted]),
            ("of another shape", [n for n in wanted if n in found and tuple(found[n].shape) != wanted[n]]),
        )
        if names
    ]
    if told:
        raise WeightsError(f"{where}: weights do not fit config.json; {'; '.join(told)}", code="E1405")


def _narrowed(place: Path, name: str, tensor: Tensor, dtype: DTypeName) -> Tensor:
    narrow = tensor.to(DTYPES[dtype])
    if bool(torch.isfinite(tensor).all()) and not bool(torch.isfinite(narrow).all()):
        largest = float(tensor.abs().max())
        raise WeightsError(
            f"{place}: {name} has a value of size {largest:g}, too large for {dtype}; write bf16 or fp32", code="E1416"
        )
    return narrow


def _is_schedule(name: str) -> bool:
    return name.startswith("model.") and not name.startswith("model.diffusion_model.")
