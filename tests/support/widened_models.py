"""Tiny SD, SDXL and FLUX.1 models with random weights, and the same with further input channels, as if these were
trained."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from mezzotint import registry
from mezzotint.families.base import ModelFamily
from mezzotint.settings.sections.model import ModelSettings
from support.model_export import export_model, load_model
from support.sd_folder import edit

FAMILIES = ("sd", "sdxl")


def kind_of(name: str) -> type[ModelFamily]:
    """A family by name."""
    kind: type[ModelFamily] = registry.find("families", name).Family
    return kind


def text_model(name: str, folder: Path, **changed: Any) -> Path:
    """A folder of a text-to-image model. changed: as for `export_model`."""
    settings = ModelSettings(family=name, path=kind_of(name).files.tiny().root, weights="random")
    return export_model(load_model(kind_of(name), settings, seed=5), folder, **changed)


def widened_model(name: str, plain: Path, folder: Path, task: Literal["edit", "inpaint"], **changed: Any) -> Path:
    """A folder of the same model with other tensors in its new channels than the zeros of `model.task`."""
    family = load_model(kind_of(name), ModelSettings(family=name, path=plain, task=task))
    weight = first_layer(family).detach().clone()
    weight[:, 4:] = torch.randn(weight[:, 4:].shape, generator=torch.Generator().manual_seed(1)) / 8
    return export_model(family, folder, {"denoiser/conv_in.weight": weight}, **changed)


def fill_model(flux: Path, folder: Path) -> Path:
    """A folder of FLUX.1 Fill. flux: a tiny FLUX.1 dev with latents of 4 channels."""
    shutil.copytree(flux, folder)
    edit(folder / "model_index.json", _class_name="FluxFillPipeline")
    edit(folder / "transformer" / "config.json", in_channels=4 * (4 + 4 + 64), out_channels=16)
    [path] = (folder / "transformer").glob("*.safetensors")
    weights = load_file(path)
    narrow = weights["x_embedder.weight"]
    more = torch.randn(len(narrow), 4 * (4 + 64), generator=torch.Generator().manual_seed(1)) / 16
    save_file({**weights, "x_embedder.weight": torch.cat([narrow, more.to(narrow)], dim=1)}, path)
    return folder


def first_layer(family: ModelFamily) -> Tensor:
    """The weight of the denoiser's first layer, (out, in, 3, 3)."""
    weight = family.parts()["denoiser"].conv_in.weight  # type: ignore[union-attr]
    assert isinstance(weight, Tensor)
    return weight
