"""SDXL in MindONE's checkpoints: names of all tensors of the full-size models, and small models that are converted
back and forth bit-exactly."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from mezzotint.cli import main
from mezzotint.compat.mindone import mindspore_format
from mezzotint.compat.mindone import sdxl_layout as mindone_sdxl
from mezzotint.compat.mindone.sdxl_layout import mindspore_name, stability_name
from mezzotint.families.sdxl import Family
from mezzotint.settings.sections.model import ModelSettings
from mezzotint.weights import kinds
from mezzotint.weights.files import formats
from mezzotint.weights.folder import components
from mezzotint.weights.folder.model_folder import open_folder
from mezzotint.weights.keymap import Shape
from mezzotint.weights.layouts import sdxl
from mezzotint.weights.single_file import known_layouts
from support import sdxl_files
from support.layout_names import LAYOUTS, RECORDS, header_of
from support.model_export import in_one_file, load_model
from support.sdxl_files import COUNTS, convert, equal, folder_tensors, names_of

THEIRS = {"sdxl": mindone_sdxl.LAYOUT, "sdxl-refiner": mindone_sdxl.LAYOUT.variants[0]}
configs, folders, singles = sdxl_files.configs, sdxl_files.folders, sdxl_files.singles


@pytest.mark.parametrize(("model", "component"), list(COUNTS))
def test_full_size_tensor_names_round_trip(model: str, component: str) -> None:
    sdxl_files.require_every_tensor(model, component, THEIRS[model])


@pytest.mark.parametrize(("model", "count", "renamed"), [("sdxl", 2514, 799), ("sdxl-refiner", 1858, 611)])
def test_files_have_as_many_names_as_published(model: str, count: int, renamed: int) -> None:
    stability, mindone = (names_of(model, layout) for layout in (LAYOUTS[model], THEIRS[model]))
    assert len(mindone) == len(set(mindone)) == count
    assert list(THEIRS[model].filled) == [sdxl_files.SCALES[model]]
    assert [mindspore_name(name) for name in stability] == mindone
    assert [stability_name(name) for name in mindone] == stability
    assert sum(a != b for a, b in zip(stability, mindone, strict=True)) == renamed


def recorded_names() -> dict[str, tuple[str, Shape]]:
    record = json.loads((RECORDS / "names.json").read_text())
    return {name: (mindone, tuple(shape)) for name, (mindone, shape) in record.items()}


def test_names_and_shapes_match_both_programs(configs: dict[str, Path]) -> None:
    record = recorded_names()
    names: dict[str, tuple[str, Shape]] = {}
    folder = open_folder(configs["sdxl"])
    for component, network in sdxl.LAYOUT.networks.items():
        shapes = components.shapes(network, folder.config(component), where=folder.root)
        pairs = (
            layout.choose(component, {}).table(list(shapes)).entries for layout in (sdxl.LAYOUT, mindone_sdxl.LAYOUT)
        )
        for entry, other in zip(*pairs, strict=True):
            assert entry.ours == other.ours
            names[entry.foreign] = (other.foreign, entry.foreign_shape(shapes))
    scale = sdxl_files.SCALES["sdxl"]
    assert names | {scale: (scale, ())} == record
    assert sdxl.LAYOUT.is_extra(scale)


@pytest.mark.slow
@pytest.mark.parametrize("model", list(LAYOUTS))
def test_conversion_to_mindspore_and_back_changes_no_tensor(
    model: str, folders: dict[str, Path], singles: dict[str, Path], tmp_path: Path
) -> None:
    config = f"--config={folders[model]}"
    assert convert(singles[model], tmp_path / "x.ckpt", config) == 0
    assert formats.name_at(tmp_path / "x.ckpt") == "mindspore"
    written, source = dict(mindspore_format.read(tmp_path / "x.ckpt")), load_file(singles[model])
    assert equal(written, {mindspore_name(name): tensor for name, tensor in source.items()})
    assert convert(tmp_path / "x.ckpt", tmp_path / "folder", config) == 0
    assert equal(folder_tensors(tmp_path / "folder"), folder_tensors(folders[model]))
    assert convert(tmp_path / "x.ckpt", tmp_path / "y.safetensors", config) == 0
    assert equal(load_file(tmp_path / "y.safetensors"), source)
    assert convert(tmp_path / "folder", tmp_path / "z.ckpt") == 0
    assert (tmp_path / "z.ckpt").read_bytes() == (tmp_path / "x.ckpt").read_bytes()


def test_logit_scale_is_added_for_mindspore(folders: dict[str, Path], tmp_path: Path) -> None:
    """Its readers refuse an incomplete list; no image depends on the value."""
    assert convert(folders["sdxl"], tmp_path / "x.ckpt") == 0
    scale = dict(mindspore_format.read(tmp_path / "x.ckpt", ["conditioner.embedders.1.model.logit_scale"]))
    assert scale.popitem()[1].item() == pytest.approx(math.log(100), abs=1e-4)


def test_standalone_denoiser_is_converted_under_mindspore_names(
    singles: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What a run with cached latents and texts leaves: it has to be merged before it is a model."""
    tensors = load_file(singles["sdxl"])
    alone = {mindspore_name(n): t for n, t in tensors.items() if n.startswith("model.diffusion_model.")}
    mindspore_format.write(tmp_path / "unet_1000.ckpt", alone | {"updates": torch.tensor(3)})
    assert convert(tmp_path / "unet_1000.ckpt", tmp_path / "x.safetensors") == 0
    assert equal(load_file(tmp_path / "x.safetensors"), alone | {"updates": torch.tensor(3)})
    assert "its tensors keep their names" in capsys.readouterr().out
    assert convert(tmp_path / "unet_1000.ckpt", tmp_path / "folder") == 2
    assert "without autoencoder (VAE) and text encoder" in capsys.readouterr().err


def test_other_families_are_not_written_as_mindspore_checkpoints(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = str(RECORDS.parent / "diffusers" / "tiny_sd")
    for words in (["convert", model], ["merge", model, model]):
        assert main([*words, str(tmp_path / "x.ckpt")]) == 2
        output = capsys.readouterr().err
        assert (
            "only models of family sdxl can be written as .ckpt files; use a name that ends in .safetensors" in output
        )
    assert list(tmp_path.iterdir()) == []


def test_truncated_checkpoint_is_reported_with_the_position(
    singles: dict[str, Path], folders: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert convert(singles["sdxl"], tmp_path / "x.ckpt", f"--config={folders['sdxl']}") == 0
    whole = (tmp_path / "x.ckpt").read_bytes()
    (tmp_path / "x.ckpt").write_bytes(whole[:-1000])
    assert convert(tmp_path / "x.ckpt", tmp_path / "folder", f"--config={folders['sdxl']}") == 2
    errors = capsys.readouterr().err
    assert "E1420" in errors
    assert "bytes are missing: the copy or download was cut short" in errors
    assert not (tmp_path / "folder").exists()


def test_mindspore_checkpoint_gives_the_same_predictions(sdxl_folder: Path, tmp_path: Path) -> None:
    family = load_model(Family, ModelSettings(family="sdxl", path=sdxl_folder))
    folder = open_folder(sdxl_folder)
    places = {name: folder.weights(name) for name in mindone_sdxl.LAYOUT.networks}
    tensors = {name: load_file(place.path) for name, place in places.items() if place is not None}
    file = tmp_path / "model.ckpt"
    mindspore_format.write(file, in_one_file(mindone_sdxl.LAYOUT, folder, tensors))
    loaded = load_model(Family, ModelSettings(family="sdxl", path=file, config=sdxl_folder))
    for part, module in family.parts().items():
        for name, tensor in module.state_dict().items():
            assert torch.equal(loaded.parts()[part].state_dict()[name], tensor)


@pytest.mark.parametrize("model", list(LAYOUTS))
def test_shipped_configurations_are_used_for_full_size_files(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sdxl_files.require_shipped_configurations(model, THEIRS[model], tmp_path, monkeypatch)


def test_ema_weights_are_used_on_request(folders: dict[str, Path], singles: dict[str, Path], tmp_path: Path) -> None:
    tensors = {mindspore_name(name): tensor for name, tensor in load_file(singles["sdxl"]).items()}
    layout = mindone_sdxl.LAYOUT
    copies = {layout.average(n): t + 1 for n, t in tensors.items() if n.startswith("model.diffusion_model.")}
    mindspore_format.write(tmp_path / "x.ckpt", tensors | copies)
    plain = tensors["model.diffusion_model.input_blocks.0.0.bias"]
    sdxl_files.require_averages(tmp_path / "x.ckpt", copies, plain, folders["sdxl"])


@pytest.mark.parametrize("model", list(LAYOUTS))
def test_full_size_file_is_recognized_by_its_names(model: str) -> None:
    header = header_of(model, THEIRS[model])
    words = "a single-file checkpoint of " + ("SDXL" if model == "sdxl" else "the SDXL refiner")
    assert kinds.describe_tensors(header) == words
    assert known_layouts.of_names(header.keys()) is THEIRS[model]
    assert known_layouts.for_components(LAYOUTS[model].parts, ".ckpt") is THEIRS[model]


def test_optimizer_file_names_all_tensors_of_the_base() -> None:
    family = Family.tiny()
    for part in ("denoiser", "text_encoder", "text_encoder_2"):
        names = [name for name, _ in family.parts()[part].named_parameters()]
        entries = list(mindone_sdxl.entries(part, names))
        assert sorted(name for entry in entries for name in entry.ours) == sorted(names)
        assert len({entry.foreign for entry in entries}) == len(entries)
