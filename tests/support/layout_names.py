"""Tensor names and shapes of full-size models, per layout."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mezzotint.weights.files.tensor_files import TensorInfo
from mezzotint.weights.folder import components
from mezzotint.weights.folder.model_folder import open_folder, shipped_folder
from mezzotint.weights.keymap import KeyMap, Shape, Table
from mezzotint.weights.layouts import sd, sdxl

RECORDS = Path(__file__).parents[1] / "parity" / "data" / "mindone-sdxl"
LAYOUTS = {"sdxl": sdxl.LAYOUT, "sdxl-refiner": sdxl.LAYOUT.variants[0]}


def config_of(model: str, component: str) -> dict[str, Any]:
    return open_folder(shipped_folder(model)).config(component)


def shapes_of(model: str, component: str, layout: KeyMap = sd.LAYOUT) -> dict[str, Shape]:
    return components.shapes(layout.networks[component], config_of(model, component), where=shipped_folder(model))


def table_of(model: str, component: str, layout: KeyMap = sd.LAYOUT) -> Table:
    return layout.choose(component, config_of(model, component)).table(list(shapes_of(model, component, layout)))


def header_of(model: str, layout: KeyMap) -> dict[str, TensorInfo]:
    header = {}
    for component in layout.parts:
        shapes = shapes_of(model, component, layout)
        for entry in table_of(model, component, layout).entries:
            header[entry.foreign] = TensorInfo("F16", entry.foreign_shape(shapes))
    return header
