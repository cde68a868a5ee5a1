"""Single files of flow-matching models, whose configurations and tokenizers ship or are in another folder."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from mezzotint import registry
from mezzotint.families.shared.flow_files import FlowFiles
from mezzotint.settings.sections.model import ModelSettings
from mezzotint.weights.folder.model_folder import shipped_folder
from support.messages import refused

SHIPPED = {
    "flux-dev": ("flux", 780), "flux-schnell": ("flux", 776), "flux-fill": ("flux", 780), "chroma": ("chroma", 643),
    "sd3-medium": ("sd3", 491), "sd3.5-medium": ("sd3", 665), "sd3.5-large": ("sd3", 923),
}  # fmt: skip
"""The family of each shipped configuration, and the number of tensors of the published file of its denoiser."""


def files_of(family: str, path: Path, **settings: object) -> FlowFiles:
    kind = registry.find("families", family).Family.files
    files = kind.of(ModelSettings.model_validate({"family": family, "path": path, **settings}))
    assert isinstance(files, FlowFiles)
    return files


def write_header(path: Path, shapes: Mapping[str, tuple[int, ...]], *, start: str = "") -> Path:
    """A safetensors file of these tensors whose numbers take no room on the disk."""
    header, end = {}, 0
    for name, shape in shapes.items():
        size = 2
        for side in shape:
            size *= side
        header[start + name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [end, end + size]}
        end += size
    text = json.dumps(header).encode()
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.truncate(8 + len(text) + end)
    return path


@pytest.mark.parametrize("name", SHIPPED)
@pytest.mark.parametrize("start", ["", "model.diffusion_model."])
def test_configurations_are_chosen_by_the_tensors(name: str, start: str, tmp_path: Path) -> None:
    family, count = SHIPPED[name]
    shapes = files_of(family, shipped_folder(name)).plan_original().shapes
    assert len(shapes) == count
    files = files_of(family, write_header(tmp_path / "model.safetensors", shapes, start=start))
    assert files.root == shipped_folder(name)
    assert files.text_shape()[1] == 4096


def test_t5_counts_as_published() -> None:
    tokenizer = files_of("flux", shipped_folder("flux-dev")).tokenizer("text_encoder_2")
    assert tokenizer("a photo of a cat").input_ids == [3, 9, 1202, 13, 3, 9, 1712, 1]
    assert tokenizer.pad_token_id == 0


def test_part_without_weights_names_the_setting(tmp_path: Path) -> None:
    shapes = files_of("flux", shipped_folder("flux-dev")).plan_original().shapes
    files = files_of("flux", write_header(tmp_path / "model.safetensors", shapes))
    with refused("E1407", "holds no weights of text_encoder_2; name their file in model.over"):
        files.stored("text_encoder_2")
    with refused("E1407", "holds no weights of vae; name their file in model.vae"):
        files.stored("vae")


def test_file_of_another_size_names_what_ships(tmp_path: Path) -> None:
    shapes = dict.fromkeys(files_of("flux", shipped_folder("flux-dev")).plan_original().shapes, (8, 8))
    path = write_header(tmp_path / "model.safetensors", shapes)
    with refused(
        "E1478", "none of the shipped ones fits .flux-dev, flux-schnell, flux-fill.; write model.config=FOLDER"
    ):
        files_of("flux", path)
    with refused("E1478", "and it holds none; .*its id on the hub .Qwen/Qwen-Image, .* after `hf download ID"):
        files_of("qwen-image", path)


def test_quantized_file_is_named_as_such(tmp_path: Path) -> None:
    shapes = {"double_blocks.0.img_attn.qkv.weight": (8, 8), "double_blocks.0.img_attn.qkv.scale_weight": ()}
    with refused("E1478", "is quantized with separate scales"):
        files_of("flux", write_header(tmp_path / "model.safetensors", shapes))


def test_outline_of_files_has_no_note_about_random_weights(tmp_path: Path) -> None:
    """`check` opens a model by its configurations, and prints the family's notes."""
    shapes = files_of("flux", shipped_folder("flux-dev")).plan_original().shapes
    path = write_header(tmp_path / "model.safetensors", shapes)
    kind = registry.find("families", "flux").Family.files
    outline = kind.from_configs(ModelSettings(family="flux", path=path))
    assert not any("not random but constructed" in note for note in outline.notes(outline.parts))
    drawn = kind.from_configs(ModelSettings(family="flux", path=shipped_folder("flux-dev"), weights="random"))
    assert any("not random but constructed" in note for note in drawn.notes(drawn.parts))
