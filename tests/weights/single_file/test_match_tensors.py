"""Matching the tensors of a file to a model, with names in any spelling, and checking their shapes."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from mezzotint.errors import WeightsError
from mezzotint.weights.folder.model_folder import open_folder
from mezzotint.weights.layouts.sd import LAYOUT
from mezzotint.weights.single_file import match_tensors
from support.sd_folder import FOLDER

SHAPES = match_tensors.shapes_of(open_folder(FOLDER), LAYOUT)


@pytest.mark.parametrize("name", ["conv_in.bias", "model.diffusion_model.input_blocks.0.0.bias"])
def test_part_is_recognised_in_every_spelling(tmp_path: Path, name: str) -> None:
    tensor = torch.randn(SHAPES["unet"]["conv_in.bias"])
    save_file({name: tensor, "other": torch.ones(1)}, tmp_path / "x.safetensors")
    matched = match_tensors.of_file(tmp_path / "x.safetensors", tmp_path / "x.safetensors", LAYOUT, SHAPES)
    assert matched.components["unet"].names() == {"conv_in.bias": name}
    assert torch.equal(matched.components["unet"].read(["conv_in.bias"])["conv_in.bias"], tensor)
    assert matched.unmapped == ("other",)
    assert len(matched.find_missing("unet", SHAPES["unet"])) == len(SHAPES["unet"]) - 1


def test_averaged_copy_replaces_the_plain_tensor(tmp_path: Path) -> None:
    plain = "model.diffusion_model.input_blocks.0.0.bias"
    shape, file = SHAPES["unet"]["conv_in.bias"], tmp_path / "x.safetensors"
    save_file({plain: torch.zeros(shape), LAYOUT.average(plain): torch.ones(shape)}, file)
    for averaged, value in ((False, 0.0), (True, 1.0)):
        stored = match_tensors.of_file(file, file, LAYOUT, SHAPES, averaged=averaged).components["unet"]
        assert stored.read(["conv_in.bias"])["conv_in.bias"].unique().tolist() == [value]


def test_folder_of_one_component_is_recognised() -> None:
    matched = match_tensors.of_folder(FOLDER / "vae", LAYOUT, SHAPES)
    assert list(matched.components) == ["vae"]
    assert matched.find_missing("vae", SHAPES["vae"]) == []
    assert matched.components["vae"].header().keys() == load_file(matched.components["vae"].file).keys()


@pytest.mark.parametrize(
    ("tensors", "code", "message"),
    [
        ({"conv_in.bias": torch.ones(3)}, "E1451", r"conv_in.bias has the shape \[3\], the model's unet needs"),
        ({"x": torch.ones(3)}, "E1452", "contains nothing of the model"),
    ],
)
def test_tensors_of_another_model_are_refused(
    tmp_path: Path, tensors: dict[str, torch.Tensor], code: str, message: str
) -> None:
    save_file(tensors, tmp_path / "x.safetensors")
    with pytest.raises(WeightsError, match=message) as caught:
        match_tensors.of_file(tmp_path / "x.safetensors", tmp_path / "x.safetensors", LAYOUT, SHAPES)
    assert caught.value.code == code
