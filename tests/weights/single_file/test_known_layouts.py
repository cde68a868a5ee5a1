"""Recognising the layout of a file, and choosing one for writing."""

from __future__ import annotations

import pytest

from mezzotint.weights import kinds
from mezzotint.weights.layouts import sd
from mezzotint.weights.single_file import known_layouts
from support.layout_names import LAYOUTS, header_of


@pytest.mark.parametrize("model", list(LAYOUTS))
def test_full_size_file_is_recognised_by_its_names(model: str) -> None:
    layout = LAYOUTS[model]
    header = header_of(model, layout)
    words = "a single-file checkpoint of " + ("SDXL" if model == "sdxl" else "the SDXL refiner")
    assert kinds.describe_tensors(header) == words
    assert kinds.refusal(header, "sdxl") is None
    assert kinds.refusal(header, None) is None
    assert known_layouts.of_names(header.keys()) is layout
    refusal = kinds.refusal(header, "sd")
    assert refusal == kinds.OtherKind(
        words, "family sd trains Stable Diffusion 1.x and 2.x, text to image; set model.family=sdxl"
    )


def test_layout_is_chosen_by_the_written_components() -> None:
    for model, layout in LAYOUTS.items():
        assert known_layouts.for_components(layout.parts) is layout, model
    assert known_layouts.for_components(["unet", "vae", "text_encoder"]) is sd.LAYOUT
    assert known_layouts.for_components(["unet", "vae", "text_encoder"], ".ckpt") is None
    assert known_layouts.for_components(["unet"]) is None
