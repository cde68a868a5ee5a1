"""The tiny Stable Diffusion of the parity records, and helpers to copy and edit its folder."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from diffusers.pipelines.stable_diffusion.pipeline_stable_diffusion import StableDiffusionPipeline
from torch import Tensor

from mezzotint.families.sd import Family
from mezzotint.settings.sections.model import ModelSettings

DATA = Path(__file__).parents[1] / "parity" / "data" / "diffusers"
FOLDER = DATA / "tiny_sd"


@pytest.fixture(scope="module")
def family() -> Family:
    return Family.of(ModelSettings(path=FOLDER))


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    return Path(shutil.copytree(FOLDER, tmp_path / "model"))


def edit(path: Path, **values: object) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def trained(family: Family, *parts: str) -> dict[str, Tensor]:
    """Weights a little off the base's, by `part/parameter`."""
    return {
        f"{part}/{name}": tensor + 0.01 * torch.sin(100 * tensor)
        for part in parts
        for name, tensor in family.parts()[part].state_dict().items()
    }


def opened(folder: Path) -> Any:
    return StableDiffusionPipeline.from_pretrained(str(folder), local_files_only=True)
