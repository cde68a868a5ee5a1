"""The two small models of the records with their layers and weights."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest
from torch import Tensor

from mezzotint.adapters.names import LayerNames
from mezzotint.weights.files import tensor_files

DATA = Path(__file__).parents[1] / "parity" / "data"
RECORDS = DATA / "adapters"


class Base(NamedTuple):
    """A model folder, its layers, and its weights by component and name."""

    folder: Path
    names: LayerNames
    weights: dict[str, dict[str, Tensor]]


def open_base(folder: Path) -> Base:
    """Opens a model folder of the records."""
    files = {c.name: next(c.glob("*.safetensors")) for c in folder.iterdir() if c.name in COMPONENTS}
    weights = {component: tensor_files.read(file) for component, file in files.items()}
    shapes = {c: {name: tuple(tensor.shape) for name, tensor in held.items()} for c, held in weights.items()}
    return Base(
        folder,
        LayerNames.of_stable(shapes),
        {c: {n: t.float() for n, t in held.items()} for c, held in weights.items()},
    )


COMPONENTS = ("unet", "text_encoder", "text_encoder_2")


@pytest.fixture(scope="session")
def bases() -> dict[str, Base]:
    """The small models by the prefix of record names."""
    return {"sd": open_base(DATA / "diffusers" / "tiny_sd"), "sdxl": open_base(RECORDS / "tiny_sdxl")}
