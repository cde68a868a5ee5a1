"""The layouts of SD and SDXL compared with the conversion of diffusers, in published sizes, without values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from diffusers.loaders import single_file_utils

from mezzotint.weights.folder import components
from mezzotint.weights.folder.model_folder import open_folder, shipped_folder
from mezzotint.weights.keymap import KeyMap
from mezzotint.weights.layouts import sd, sdxl
from mezzotint.weights.single_file import original

MODELS = {"sd1": sd.LAYOUT, "sd2": sd.LAYOUT, "sdxl": sdxl.LAYOUT, "sdxl-refiner": sdxl.LAYOUT.variants[0]}
CONVERSIONS: dict[str, Callable[..., Mapping[str, original.TensorRows]]] = {
    "unet": single_file_utils.convert_ldm_unet_checkpoint,
    "vae": single_file_utils.convert_ldm_vae_checkpoint,
}


@pytest.mark.parametrize("component", CONVERSIONS)
@pytest.mark.parametrize("name", MODELS)
def test_diffusers_finds_every_tensor(name: str, component: str) -> None:
    layout: KeyMap = MODELS[name]
    config: dict[str, Any] = open_folder(shipped_folder(name)).config(component)
    own = components.shapes(layout.networks[component], config, where=Path("config.json"))
    entries = layout.choose(component, config).table(list(own)).entries
    file = {entry.foreign: original.all_rows(entry.foreign, entry.foreign_shape(own)) for entry in entries}
    theirs = CONVERSIONS[component](file, config)
    assert {key: rows.shape for key, rows in theirs.items()} == own
    assert {key: rows.pieces[0][0] for key, rows in theirs.items()} == {e.ours[0]: e.foreign for e in entries}
