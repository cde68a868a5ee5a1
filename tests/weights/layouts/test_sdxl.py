"""SDXL in files: every tensor of the full-size models has its place under Stability's names and MindONE's, both ways,
and small models go from form to form and back to the bit.
"""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from diffusers.models.autoencoders.autoencoder_kl import AutoencoderKL
from diffusers.models.unets.unet_2d_condition import UNet2DConditionModel
from layout_names import LAYOUTS, RECORDS, header_of, shapes_of, table_of
from model_export import is_sealed
from safetensors.torch import load_file, save_file
from torch import Tensor

from mezzotint.cli import main
from mezzotint.compat.mindone import sdxl_layout as mindone_sdxl
from mezzotint.compat.mindone.sdxl_layout import mindspore_name, stability_name
from mezzotint.errors import WeightsError
from mezzotint.weights import kinds
from mezzotint.weights.files import mindspore
from mezzotint.weights.files.tensor_files import read_header, read_metadata
from mezzotint.weights.folder import components
from mezzotint.weights.folder.export import Replaced, write_model
from mezzotint.weights.folder.model_folder import open_folder, shipped
from mezzotint.weights.keymap import Entry, KeyMap, Shape
from mezzotint.weights.layouts import sdxl
from mezzotint.weights.single_file.single_file import SingleFile, open_single

COUNTS = {
    ("sdxl", "unet"): (1680, 1680, 2_567_463_684),
    ("sdxl", "vae"): (248, 248, 83_653_863),
    ("sdxl", "text_encoder"): (196, 196, 123_060_480),
    ("sdxl", "text_encoder_2"): (517, 389, 694_659_840),
    ("sdxl-refiner", "unet"): (1220, 1220, 2_259_526_660),
    ("sdxl-refiner", "vae"): (248, 248, 83_653_863),
    ("sdxl-refiner", "text_encoder_2"): (517, 389, 694_659_840),
}
"""Tensors of ours, tensors in a single file, numbers: as the published models have them."""


def names_of(model: str, layout: KeyMap) -> list[str]:
    """All names of a file of the full-size model, with what its readers ask for besides."""
    names = [entry.foreign for component in layout.parts for entry in table_of(model, component, layout).entries]
    return [*names, *LAYOUTS[model][1].filled]


@pytest.mark.parametrize(("model", "component"), list(COUNTS))
@pytest.mark.parametrize("which", [0, 1], ids=["stability", "mindone"])
def test_every_tensor_of_a_full_size_model_has_its_place_both_ways(model: str, component: str, which: int) -> None:
    layout = LAYOUTS[model][which]
    shapes, table = shapes_of(model, component, layout), table_of(model, component, layout)
    ours, foreign, numbers = COUNTS[model, component]
    assert len(shapes) == ours
    assert len(table.entries) == len({entry.foreign for entry in table.entries}) == foreign
    assert sum(math.prod(shape) for shape in shapes.values()) == numbers
    assert sorted(name for entry in table.entries for name in entry.ours) == sorted(shapes)
    for entry in table.entries:
        told = entry.foreign_shape(shapes)
        assert entry.shapes(told) == {name: shapes[name] for name in entry.ours}
        assert table.reads(entry.foreign) is entry
        assert all(table.holds(name) is entry for name in entry.ours)


@pytest.mark.parametrize(("model", "count", "renamed"), [("sdxl", 2514, 799), ("sdxl-refiner", 1858, 611)])
def test_files_have_as_many_names_as_the_published_lists(model: str, count: int, renamed: int) -> None:
    stability, mindone = (names_of(model, layout) for layout in LAYOUTS[model])
    assert len(stability) == len(set(stability)) == len(set(mindone)) == count
    assert [mindspore_name(name) for name in stability] == mindone
    assert [stability_name(name) for name in mindone] == stability
    assert sum(a != b for a, b in zip(stability, mindone, strict=True)) == renamed


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
    layout = LAYOUTS[model][0]
    entry = table_of(model, component, layout).reads(name)
    assert entry is not None
    assert entry.foreign_shape(shapes_of(model, component, layout)) == shape


def recorded_names() -> dict[str, tuple[str, Shape]]:
    record = json.loads((RECORDS / "names.json").read_text())
    return {name: (mindone, tuple(shape)) for name, (mindone, shape) in record.items()}


SMALL: dict[str, dict[str, Any]] = {
    "unet": {
        "block_out_channels": [32, 64], "layers_per_block": 1, "cross_attention_dim": 64,
        "down_block_types": ["DownBlock2D", "CrossAttnDownBlock2D"],
        "up_block_types": ["CrossAttnUpBlock2D", "UpBlock2D"], "transformer_layers_per_block": [1, 2],
        "attention_head_dim": [2, 4], "addition_time_embed_dim": 8, "projection_class_embeddings_input_dim": 80,
    },
    "vae": {
        "block_out_channels": [32, 64], "layers_per_block": 1, "down_block_types": ["DownEncoderBlock2D"] * 2,
        "up_block_types": ["UpDecoderBlock2D"] * 2,
    },
    "text_encoder": {
        "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 3, "num_attention_heads": 2,
        "vocab_size": 1000, "projection_dim": 32,
    },
    "text_encoder_2": {
        "hidden_size": 32, "intermediate_size": 128, "num_hidden_layers": 3, "num_attention_heads": 2,
        "vocab_size": 1000, "projection_dim": 32,
    },
}  # fmt: skip
"""The sizes of the recorded model, as changes of the shipped configurations."""


@pytest.fixture(scope="module")
def configs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Configurations of a small SDXL and a small refiner."""
    root = tmp_path_factory.mktemp("configs")
    for model in LAYOUTS:
        shutil.copytree(shipped(model), root / model)
        for component, change in SMALL.items():
            path = root / model / component / "config.json"
            if path.is_file():
                refiner = {"cross_attention_dim": 32, "projection_class_embeddings_input_dim": 72}
                changed = change | (refiner if (model, component) == ("sdxl-refiner", "unet") else {})
                path.write_text(json.dumps(json.loads(path.read_text()) | changed))
    return {model: root / model for model in LAYOUTS}


def test_the_names_and_shapes_are_those_that_both_programs_write(configs: dict[str, Path]) -> None:
    record = recorded_names()
    names: dict[str, tuple[str, Shape]] = {}
    folder = open_folder(configs["sdxl"])
    for component, network in sdxl.LAYOUT.networks.items():
        shapes = components.shapes(network, folder.config(component), where=folder.root)
        pairs = (layout.choose(component, {}).table(list(shapes)).entries for layout in LAYOUTS["sdxl"])
        for entry, other in zip(*pairs, strict=True):
            assert entry.ours == other.ours
            names[entry.foreign] = (other.foreign, entry.foreign_shape(shapes))
    scale = "conditioner.embedders.1.model.logit_scale"
    assert names | {scale: (scale, ())} == record
    assert sdxl.LAYOUT.is_extra(scale)


def test_text_encoders_of_such_a_file_give_what_they_gave_there(configs: dict[str, Path], tmp_path: Path) -> None:
    """Query, key and value, and the projection, come out of their tensors the right way round."""
    record = load_file(RECORDS / "text_encoders.safetensors")
    folder = open_folder(configs["sdxl"])
    networks = {}
    for component in ("text_encoder", "text_encoder_2"):
        network = sdxl.LAYOUT.networks[component]
        shapes = components.shapes(network, folder.config(component), where=folder.root)
        table = sdxl.LAYOUT.choose(component, {}).table(list(shapes))
        ours = {k: t for name, entry in table.present(record).items() for k, t in entry.to_ours(record[name]).items()}
        path = tmp_path / f"{component}.safetensors"
        save_file(ours, path)
        networks[component] = components.load(network, folder.config(component), path, where=folder.root)
    with torch.no_grad():
        first = networks["text_encoder"](record["record.input_ids_clip"], output_hidden_states=True)
        second = networks["text_encoder_2"](record["record.input_ids_openclip"], output_hidden_states=True)
    states = torch.cat([first.hidden_states[-2], second.hidden_states[-2]], dim=-1)
    torch.testing.assert_close(states, record["record.crossattn"], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(second.text_embeds, record["record.vector"][:, :32], rtol=1e-5, atol=1e-5)


def test_a_transposed_matrix_is_laid_out_anew_both_ways() -> None:
    entry = Entry("theirs", ("ours",), transposed=True)
    theirs = torch.arange(6.0).reshape(2, 3)
    ours = entry.to_ours(theirs)["ours"]
    assert ours.equal(theirs.t())
    assert ours.is_contiguous()
    assert entry.to_foreign({"ours": ours}).equal(theirs)
    assert entry.to_foreign({"ours": ours}).is_contiguous()
    assert entry.shapes((2, 3)) == {"ours": (3, 2)}
    assert entry.foreign_shape({"ours": (3, 2)}) == (2, 3)


def convert(*words: object) -> int:
    return main(["convert", *map(str, words)])


@pytest.fixture(scope="module")
def folders(configs: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A small SDXL and a small refiner with random weights, in diffusers' folders."""
    root = tmp_path_factory.mktemp("folders")
    for model, (layout, _) in LAYOUTS.items():
        source, replaced = open_folder(configs[model]), {}
        for component, network in layout.networks.items():
            config = source.config(component)
            drawn = components.draw(network, config, 3, component, where=source.root)
            replaced[component] = Replaced(network, drawn.state_dict(), config)
        scheduler = source.config("scheduler", "scheduler_config.json")
        write_model(root / model, source, replaced, scheduler=scheduler, dtype="fp32")
    return {model: root / model for model in LAYOUTS}


@pytest.fixture(scope="module")
def singles(folders: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The same in single files under Stability's names, with what such files have besides."""
    root = tmp_path_factory.mktemp("singles")
    for model, folder in folders.items():
        assert convert(folder, root / "plain.safetensors") == 0
        tensors = load_file(root / "plain.safetensors")
        (root / "plain.safetensors").unlink()
        scale = next(iter(LAYOUTS[model][1].filled))
        assert scale not in tensors
        tensors[scale] = torch.tensor(4.6)
        save_file(tensors, root / f"{model}.safetensors", {"modelspec.author": "someone"})
    return {model: root / f"{model}.safetensors" for model in LAYOUTS}


def folder_tensors(folder: Path) -> dict[str, Tensor]:
    return {
        f"{path.parent.name}/{n}": t
        for path in sorted(folder.glob("*/*model.safetensors"))
        for n, t in load_file(path).items()
    }


def equal(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    return a.keys() == b.keys() and all(t.dtype == b[n].dtype and t.equal(b[n]) for n, t in a.items())


@pytest.mark.parametrize("model", list(LAYOUTS))
def test_from_one_file_to_a_folder_and_back_every_tensor_is_the_same(
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


@pytest.mark.slow
@pytest.mark.parametrize("model", list(LAYOUTS))
def test_through_mindspores_checkpoint_and_back_every_tensor_is_the_same(
    model: str, folders: dict[str, Path], singles: dict[str, Path], tmp_path: Path
) -> None:
    config = f"--config={folders[model]}"
    assert convert(singles[model], tmp_path / "x.ckpt", config) == 0
    assert mindspore.is_mindspore(tmp_path / "x.ckpt")
    written, source = dict(mindspore.read(tmp_path / "x.ckpt")), load_file(singles[model])
    assert equal(written, {mindspore_name(name): tensor for name, tensor in source.items()})
    assert convert(tmp_path / "x.ckpt", tmp_path / "folder", config) == 0
    assert equal(folder_tensors(tmp_path / "folder"), folder_tensors(folders[model]))
    assert convert(tmp_path / "x.ckpt", tmp_path / "y.safetensors", config) == 0
    assert equal(load_file(tmp_path / "y.safetensors"), source)
    assert convert(tmp_path / "folder", tmp_path / "z.ckpt") == 0
    assert (tmp_path / "z.ckpt").read_bytes() == (tmp_path / "x.ckpt").read_bytes()


def test_a_folder_without_openclips_scale_gets_one_for_mindspore(folders: dict[str, Path], tmp_path: Path) -> None:
    """Its readers refuse a list that is not complete; no picture depends on the value."""
    assert convert(folders["sdxl"], tmp_path / "x.ckpt") == 0
    scale = dict(mindspore.read(tmp_path / "x.ckpt", ["conditioner.embedders.1.model.logit_scale"]))
    assert scale.popitem()[1].item() == pytest.approx(math.log(100), abs=1e-4)


def test_diffusers_reads_what_is_written(folders: dict[str, Path], tmp_path: Path) -> None:
    assert convert(folders["sdxl"], tmp_path / "x.safetensors") == 0
    path, folder = str(tmp_path / "x.safetensors"), str(folders["sdxl"])
    unet = UNet2DConditionModel.from_single_file(path, config=folder, subfolder="unet")
    vae = AutoencoderKL.from_single_file(path, config=folder, subfolder="vae")
    for theirs, component in ((unet, "unet"), (vae, "vae")):
        assert equal(
            theirs.state_dict(), load_file(folders["sdxl"] / component / "diffusion_pytorch_model.safetensors")
        )


@pytest.mark.parametrize(("model", "kind"), [("sdxl", "base"), ("sdxl-refiner", "refiner")])
def test_the_header_says_which_model_it_is(model: str, kind: str, folders: dict[str, Path], tmp_path: Path) -> None:
    assert convert(folders[model], tmp_path / "x.safetensors", "--dtype=fp16") == 0
    metadata = read_metadata(tmp_path / "x.safetensors")
    assert metadata["modelspec.architecture"] == f"stable-diffusion-xl-v1-{kind}"
    assert metadata["modelspec.resolution"].startswith("256x")  # the small autoencoder halves once
    assert metadata["modelspec.prediction_type"] == "epsilon"
    assert is_sealed(tmp_path / "x.safetensors")
    assert {info.dtype for info in read_header(tmp_path / "x.safetensors").values()} == {"F16"}


def test_averaged_weights_are_used_when_asked_for(
    folders: dict[str, Path], singles: dict[str, Path], tmp_path: Path
) -> None:
    tensors = load_file(singles["sdxl"])
    for layout, name, is_stability in ((sdxl.LAYOUT, "x.safetensors", True), (mindone_sdxl.LAYOUT, "x.ckpt", False)):
        spelled = {n if is_stability else mindspore_name(n): t for n, t in tensors.items()}
        copies = {layout.average(n): t + 1 for n, t in spelled.items() if n.startswith("model.diffusion_model.")}
        path = tmp_path / name
        save_file(spelled | copies, path) if is_stability else mindspore.write(path, spelled | copies)
        single = opened(path, folders["sdxl"], averaged=True)
        read = single.component("unet").read(["conv_in.bias"])["conv_in.bias"]
        assert read.equal(tensors["model.diffusion_model.input_blocks.0.0.bias"] + 1)
        assert len(single.besides.averages) == len(copies)
        assert not single.besides.unknown


def opened(path: Path, config: Path | None = None, **more: Any) -> SingleFile:
    return open_single(path, None, config=config, **more)


@pytest.mark.parametrize(
    ("channels", "drop", "words"),
    [
        (9, (), r"an inpainting model .*; family sdxl trains models of 4 channels"),
        (4, ("first_stage_model.",), r"without autoencoder \(VAE\)"),
        (4, ("conditioner.",), "without text encoder"),
        (4, ("conditioner.", "first_stage_model."), r"without autoencoder \(VAE\) and text encoder"),
        (4, ("conditioner.embedders.0.",), "lacks a part of a single-file checkpoint of SDXL"),
    ],
)
def test_what_is_no_whole_sdxl_is_refused_by_name(
    channels: int, drop: tuple[str, ...], words: str, singles: dict[str, Path], tmp_path: Path
) -> None:
    tensors = {n: t for n, t in load_file(singles["sdxl"]).items() if not (drop and n.startswith(drop))}
    tensors["model.diffusion_model.input_blocks.0.0.weight"] = torch.zeros(32, channels, 3, 3)
    save_file(tensors, tmp_path / "x.safetensors")
    with pytest.raises(WeightsError, match=words) as caught:
        opened(tmp_path / "x.safetensors")
    assert caught.value.code == "E1406"


def test_a_model_of_another_family_is_refused_by_name(tmp_path: Path) -> None:
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
def test_a_folder_is_told_by_its_small_files(model: str, words: str) -> None:
    folder = open_folder(shipped(model))
    unet = folder.config("unet")
    assert str(kinds.of_index(folder.index, unet, "sd")).startswith(words)
    assert kinds.of_index(folder.index, unet, "sdxl") is None
    assert kinds.of_index(folder.index, unet, None) is None
    plain = open_folder(shipped("sd1"))
    assert kinds.of_index(plain.index, plain.config("unet"), "sdxl") is not None


@pytest.mark.parametrize("model", list(LAYOUTS))
@pytest.mark.parametrize("which", [0, 1], ids=["stability", "mindone"])
def test_shipped_configurations_are_chosen_for_full_size_files(
    model: str, which: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the header alone; the file is one whose values nobody has."""
    header = header_of(model, LAYOUTS[model][which])
    (tmp_path / "x.ckpt").write_bytes(b"")
    monkeypatch.setattr("mezzotint.weights.files.tensor_files.read_header", lambda path: header)
    monkeypatch.setattr("mezzotint.weights.files.tensor_files.read_metadata", lambda path: {})
    single = open_single(tmp_path / "x.ckpt", sdxl.LAYOUT)
    assert single.folder.root == shipped(model)
    assert single.layout is LAYOUTS[model][which]
    for component in single.layout.parts:
        assert {n: i.shape for n, i in single.component(component).header().items()} == shapes_of(
            model, component, single.layout
        )
    assert single.besides == type(single.besides)((), (), ())


def test_a_denoiser_alone_in_mindspores_format_is_converted_under_its_names(
    singles: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What a run with cached latents and texts leaves: it has to be merged before it is a model."""
    tensors = load_file(singles["sdxl"])
    alone = {mindspore_name(n): t for n, t in tensors.items() if n.startswith("model.diffusion_model.")}
    mindspore.write(tmp_path / "unet_1000.ckpt", alone | {"updates": torch.tensor(3)})
    assert convert(tmp_path / "unet_1000.ckpt", tmp_path / "x.safetensors") == 0
    assert equal(load_file(tmp_path / "x.safetensors"), alone | {"updates": torch.tensor(3)})
    assert "its tensors keep their names" in capsys.readouterr().out
    assert convert(tmp_path / "unet_1000.ckpt", tmp_path / "folder") == 2
    assert "without autoencoder (VAE) and text encoder" in capsys.readouterr().err


def test_a_truncated_checkpoint_is_named_with_the_place(
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
