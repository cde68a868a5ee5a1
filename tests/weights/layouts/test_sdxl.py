"""SDXL files: every tensor of full-size models is mapped both ways, and small models round-trip exactly."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from diffusers.models.autoencoders.autoencoder_kl import AutoencoderKL
from diffusers.models.unets.unet_2d_condition import UNet2DConditionModel
from safetensors.torch import load_file, save_file

from mezzotint.errors import WeightsError
from mezzotint.weights import kinds
from mezzotint.weights.files.tensor_files import read_header, read_metadata
from mezzotint.weights.folder import components
from mezzotint.weights.folder.model_folder import open_folder, shipped_folder
from mezzotint.weights.keymap import Entry, Shape
from mezzotint.weights.layouts import sdxl
from mezzotint.weights.single_file.single_file import open_single
from support import sdxl_files
from support.layout_names import LAYOUTS, RECORDS, shapes_of, table_of
from support.model_export import is_sealed
from support.sdxl_files import COUNTS, convert, equal, folder_tensors, names_of, opened

configs, folders, singles = sdxl_files.configs, sdxl_files.folders, sdxl_files.singles


@pytest.mark.parametrize(("model", "component"), list(COUNTS))
def test_every_tensor_of_full_size_models_is_mapped_both_ways(model: str, component: str) -> None:
    sdxl_files.require_every_tensor(model, component, LAYOUTS[model])


@pytest.mark.parametrize(("model", "count"), [("sdxl", 2514), ("sdxl-refiner", 1858)])
def test_files_have_as_many_tensors_as_published(model: str, count: int) -> None:
    names = names_of(model, LAYOUTS[model])
    assert len(names) == len(set(names)) == count


@pytest.mark.parametrize(
    ("model", "component", "name", "shape"),
    [
        ("sdxl", "unet", "model.diffusion_model.label_emb.0.0.weight", (1280, 2816)),
        ("sdxl", "unet", "model.diffusion_model.input_blocks.8.1.transformer_blocks.9.attn2.to_k.weight", (1280, 2048)),
        ("sdxl", "unet", "model.diffusion_model.input_blocks.4.1.proj_in.weight", (640, 640)),
        ("sdxl", "unet", "model.diffusion_model.output_blocks.2.2.conv.weight", (1280, 1280, 3, 3)),
        ("sdxl-refiner", "unet", "model.diffusion_model.label_emb.0.0.weight", (1536, 2560)),
        (
            "sdxl-refiner", "unet",
            "model.diffusion_model.middle_block.1.transformer_blocks.3.attn2.to_k.weight", (1536, 1280),
        ),
        ("sdxl-refiner", "unet", "model.diffusion_model.output_blocks.2.1.conv.weight", (1536, 1536, 3, 3)),
        ("sdxl", "vae", "first_stage_model.decoder.mid.attn_1.q.weight", (512, 512, 1, 1)),
        (
            "sdxl", "text_encoder",
            "conditioner.embedders.0.transformer.text_model.embeddings.token_embedding.weight", (49408, 768),
        ),
        (
            "sdxl", "text_encoder_2",
            "conditioner.embedders.1.model.transformer.resblocks.31.attn.in_proj_weight", (3840, 1280),
        ),
        ("sdxl", "text_encoder_2", "conditioner.embedders.1.model.text_projection", (1280, 1280)),
        ("sdxl-refiner", "text_encoder_2", "conditioner.embedders.0.model.positional_embedding", (77, 1280)),
    ],
)  # fmt: skip
def test_published_files_have_these_names_and_shapes(model: str, component: str, name: str, shape: Shape) -> None:
    layout = LAYOUTS[model]
    entry = table_of(model, component, layout).find_foreign(name)
    assert entry is not None
    assert entry.foreign_shape(shapes_of(model, component, layout)) == shape


def test_text_encoder_outputs_match_the_record(configs: dict[str, Path], tmp_path: Path) -> None:
    """Query, key, value and the projection are split and transposed correctly."""
    record = load_file(RECORDS / "text_encoders.safetensors")
    folder = open_folder(configs["sdxl"])
    networks = {}
    for component in ("text_encoder", "text_encoder_2"):
        network = sdxl.LAYOUT.networks[component]
        shapes = components.shapes(network, folder.config(component), where=folder.root)
        table = sdxl.LAYOUT.choose(component, {}).table(list(shapes))
        ours = {
            k: t for name, entry in table.match_names(record).items() for k, t in entry.to_ours(record[name]).items()
        }
        path = tmp_path / f"{component}.safetensors"
        save_file(ours, path)
        networks[component] = components.load(network, folder.config(component), path, where=folder.root)
    with torch.no_grad():
        first = networks["text_encoder"](record["record.input_ids_clip"], output_hidden_states=True)
        second = networks["text_encoder_2"](record["record.input_ids_openclip"], output_hidden_states=True)
    states = torch.cat([first.hidden_states[-2], second.hidden_states[-2]], dim=-1)
    torch.testing.assert_close(states, record["record.crossattn"], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(second.text_embeds, record["record.vector"][:, :32], rtol=1e-5, atol=1e-5)


def test_transposed_matrix_is_contiguous_both_ways() -> None:
    entry = Entry("theirs", ("ours",), transposed=True)
    theirs = torch.arange(6.0).reshape(2, 3)
    ours = entry.to_ours(theirs)["ours"]
    assert ours.equal(theirs.t())
    assert ours.is_contiguous()
    assert entry.to_foreign({"ours": ours}).equal(theirs)
    assert entry.to_foreign({"ours": ours}).is_contiguous()
    assert entry.shapes((2, 3)) == {"ours": (3, 2)}
    assert entry.foreign_shape({"ours": (3, 2)}) == (2, 3)


@pytest.mark.parametrize("model", list(LAYOUTS))
def test_single_file_and_folder_round_trip(
    model: str, folders: dict[str, Path], singles: dict[str, Path], tmp_path: Path
) -> None:
    single, folder, again = singles[model], tmp_path / "folder", tmp_path / "again.safetensors"
    assert convert(single, folder, f"--config={folders[model]}") == 0
    assert equal(folder_tensors(folder), folder_tensors(folders[model]))
    assert sorted(p.name for p in folder.iterdir() if p.name != "single_file") == sorted(
        p.name for p in folders[model].iterdir()
    )
    assert convert(folder, again) == 0
    assert equal(load_file(again), load_file(single))
    assert read_metadata(again)["modelspec.author"] == "someone"


def test_diffusers_loads_the_written_file(folders: dict[str, Path], tmp_path: Path) -> None:
    assert convert(folders["sdxl"], tmp_path / "x.safetensors") == 0
    path, folder = str(tmp_path / "x.safetensors"), str(folders["sdxl"])
    unet = UNet2DConditionModel.from_single_file(path, config=folder, subfolder="unet")
    vae = AutoencoderKL.from_single_file(path, config=folder, subfolder="vae")
    for theirs, component in ((unet, "unet"), (vae, "vae")):
        assert equal(
            theirs.state_dict(), load_file(folders["sdxl"] / component / "diffusion_pytorch_model.safetensors")
        )


@pytest.mark.parametrize(("model", "kind"), [("sdxl", "base"), ("sdxl-refiner", "refiner")])
def test_header_names_the_model(model: str, kind: str, folders: dict[str, Path], tmp_path: Path) -> None:
    assert convert(folders[model], tmp_path / "x.safetensors", "--dtype=fp16") == 0
    metadata = read_metadata(tmp_path / "x.safetensors")
    assert metadata["modelspec.architecture"] == f"stable-diffusion-xl-v1-{kind}"
    assert metadata["modelspec.resolution"].startswith("256x")  # the small autoencoder halves once
    assert metadata["modelspec.prediction_type"] == "epsilon"
    assert is_sealed(tmp_path / "x.safetensors")
    assert {info.dtype for info in read_header(tmp_path / "x.safetensors").values()} == {"F16"}


@pytest.mark.parametrize(
    ("channels", "drop", "words"),
    [
        (5, (), r"a depth-to-image model .*; family sdxl trains models of 4 channels"),
        (4, ("first_stage_model.",), r"without autoencoder \(VAE\)"),
        (4, ("conditioner.",), "without text encoder"),
        (4, ("conditioner.", "first_stage_model."), r"without autoencoder \(VAE\) and text encoder"),
        (4, ("conditioner.embedders.0.",), "lacks a part of a single-file checkpoint of SDXL"),
    ],
)
def test_incomplete_or_different_sdxl_is_refused(
    channels: int, drop: tuple[str, ...], words: str, singles: dict[str, Path], tmp_path: Path
) -> None:
    tensors = {n: t for n, t in load_file(singles["sdxl"]).items() if not (drop and n.startswith(drop))}
    tensors["model.diffusion_model.input_blocks.0.0.weight"] = torch.zeros(32, channels, 3, 3)
    save_file(tensors, tmp_path / "x.safetensors")
    with pytest.raises(WeightsError, match=words) as caught:
        opened(tmp_path / "x.safetensors")
    assert caught.value.code == "E1406"


def test_model_of_another_family_is_refused(tmp_path: Path) -> None:
    tensors = {
        "model.diffusion_model.input_blocks.0.0.weight": torch.zeros(320, 4, 1, 1),
        "model.diffusion_model.input_blocks.1.1.transformer_blocks.0.attn2.to_k.weight": torch.zeros(1, 768),
        "cond_stage_model.transformer.x": torch.zeros(1),
        "first_stage_model.x": torch.zeros(1),
    }
    save_file(tensors, tmp_path / "x.safetensors")
    words = "looks like a single-file checkpoint of SD 1.x; family sdxl trains SDXL's base model and its refiner"
    with pytest.raises(WeightsError, match=words):
        open_single(tmp_path / "x.safetensors", sdxl.LAYOUT)


@pytest.mark.parametrize(("model", "words"), [("sdxl", "SDXL (cross"), ("sdxl-refiner", "the SDXL refiner (cross")])
def test_folder_is_recognised_by_its_configurations(model: str, words: str) -> None:
    folder = open_folder(shipped_folder(model))
    unet = folder.config("unet")
    assert str(kinds.describe_folder(folder.index, unet, "sd")).startswith(words)
    assert kinds.describe_folder(folder.index, unet, "sdxl") is None
    assert kinds.describe_folder(folder.index, unet, None) is None
    plain = open_folder(shipped_folder("sd1"))
    assert kinds.describe_folder(plain.index, plain.config("unet"), "sdxl") is not None


@pytest.mark.parametrize("model", list(LAYOUTS))
def test_shipped_configurations_are_used_for_full_size_files(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sdxl_files.require_shipped_configurations(model, LAYOUTS[model], tmp_path, monkeypatch)


def test_averaged_weights_are_used_on_request(
    folders: dict[str, Path], singles: dict[str, Path], tmp_path: Path
) -> None:
    tensors = load_file(singles["sdxl"])
    copies = {sdxl.LAYOUT.average(n): t + 1 for n, t in tensors.items() if n.startswith("model.diffusion_model.")}
    save_file(tensors | copies, tmp_path / "x.safetensors")
    plain = tensors["model.diffusion_model.input_blocks.0.0.bias"]
    sdxl_files.require_averages(tmp_path / "x.safetensors", copies, plain, folders["sdxl"])


def test_names_and_shapes_match_another_program(configs: dict[str, Path]) -> None:
    record = json.loads((RECORDS / "names.json").read_text())
    names: dict[str, Shape] = {}
    folder = open_folder(configs["sdxl"])
    for component, network in sdxl.LAYOUT.networks.items():
        shapes = components.shapes(network, folder.config(component), where=folder.root)
        for entry in sdxl.LAYOUT.choose(component, {}).table(list(shapes)).entries:
            names[entry.foreign] = entry.foreign_shape(shapes)
    scale = sdxl_files.SCALES["sdxl"]
    assert names | {scale: ()} == {name: tuple(shape) for name, (_, shape) in record.items()}
    assert sdxl.LAYOUT.is_extra(scale)
