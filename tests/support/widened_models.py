"""Tiny SD and SDXL models with random weights, and the same with further input channels, as if these were trained."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from mezzotint import registry
from mezzotint.families.base import ModelFamily
from mezzotint.settings.sections.model import ModelSettings
from support.model_export import export_model, load_model

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


def first_layer(family: ModelFamily) -> Tensor:
    """The weight of the denoiser's first layer, (out, in, 3, 3)."""
    weight = family.parts()["denoiser"].conv_in.weight  # type: ignore[union-attr]
    assert isinstance(weight, Tensor)
    return weight
