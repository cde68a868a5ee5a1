"""Records of adapters of other programs, the small models they belong to, and checks that several adapter tests
share."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from mezzotint.adapters import networks
from mezzotint.adapters.modules import AdapterModule
from mezzotint.adapters.networks import AdapterShape
from mezzotint.assets import MODELS
from mezzotint.cli import main

DATA = Path(__file__).parents[1] / "parity" / "data"
RECORDS = DATA / "adapters"
FILES = RECORDS / "files"
SD = DATA / "diffusers" / "tiny_sd"


@pytest.fixture(scope="session")
def whole_sdxl(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The small SDXL of the records with an autoencoder, which the records have not."""
    folder = tmp_path_factory.mktemp("records") / "sdxl"
    shutil.copytree(RECORDS / "tiny_sdxl", folder)
    shutil.copytree(SD / "vae", folder / "vae")
    shutil.copy(MODELS / "tiny-sdxl" / "model_index.json", folder)
    return folder


def ran(*words: object) -> None:
    """Runs a line, which must do what it says."""
    assert main([str(word) for word in words]) == 0


def weights(folder: Path) -> dict[str, Tensor]:
    """A model folder's tensors, each with its component in front."""
    files = [file for component in sorted(folder.iterdir()) for file in component.glob("*.safetensors")]
    return {f"{file.parent.name}.{name}": t for file in files for name, t in load_file(file).items()}


def statistics(weights: Mapping[str, Tensor]) -> Tensor:
    """Sum, absolute sum, norm and an inner product of each weight in the order of their names, as the records have."""
    rows = []
    for name in sorted(weights):
        flat = weights[name].detach().double().flatten()
        waves = torch.cos(0.7 * torch.arange(len(flat), dtype=torch.float64) + 1)
        rows.append(torch.stack((flat.sum(), flat.abs().sum(), flat.norm(), flat @ waves)))
    return torch.stack(rows)


def read_off(network: nn.Module, shape: AdapterShape) -> dict[str, AdapterModule]:
    """The adapter of each layer with the values it has now, by path; tensors are copies on the CPU."""
    tensors: dict[str, dict[str, Tensor]] = {}
    for path, leaf, parameter in networks.adapter_parameters(network):
        tensors.setdefault(path, {})[leaf] = parameter.detach().to("cpu", copy=True)
    return {path: networks.as_module(shape, path, leaves) for path, leaves in tensors.items()}
