"""Original-format checkpoints of flow-matching models: written as diffusers expects them, and read back."""

from __future__ import annotations

import importlib
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from diffusers.loaders.single_file_model import SINGLE_FILE_LOADABLE_CLASSES
from diffusers.loaders.single_file_utils import infer_diffusers_model_type
from safetensors.torch import load_file, save_file
from torch import Tensor

from mezzotint.errors import WeightsError
from mezzotint.families.shared.flow_files import FlowFiles
from mezzotint.settings.families.base import family_spec, specs
from mezzotint.settings.sections.model import ModelSettings
from mezzotint.weights.files import tensor_files
from mezzotint.weights.folder import components
from mezzotint.weights.layouts import base
from mezzotint.weights.single_file import original, planned
from mezzotint.weights.single_file.original import FilePart, TensorRows, Written
from support.flow_sizes import FULL
from support.original_names import ltx_name

RECORDS = Path(__file__).parents[2] / "parity" / "data" / "flow"
FLOW_MATCHING = tuple(spec.name for spec in specs() if spec.is_flow_matching)
KINDS = {
    "sd3": "sd3", "sd3.5-medium": "sd35_medium", "sd3.5-large": "sd35_large", "flux-dev": "flux-dev",
    "flux-schnell": "flux-schnell", "chroma": "chroma", "z-image": "z-image-turbo", "wan-1.3b": "wan-t2v-1.3B",
    "wan-14b": "wan-t2v-14B", "wan-i2v-14b": "wan-i2v-14B",
    "krea2": "krea2",
    "ltx-2b": "ltx-video", "ltx-13b": "ltx-video-0.9.7", "klein-4b": "flux-2-dev", "klein-9b": "flux-2-dev",
    "flux2-dev": "flux-2-dev",
}  # fmt: skip
"""The model type that diffusers infers from tensor names; it does not know the other models."""
POSITIONS = {"sd3": (1, 36864, 1536), "sd3.5-medium": (1, 147456, 1536), "sd3.5-large": (1, 36864, 2432)}


def folder_of(name: str) -> Path:
    return RECORDS / name.replace("-", "_").replace("flux2", "flux2_klein") / "model"


def files_class(name: str) -> type[FlowFiles]:
    kind: type[FlowFiles] = importlib.import_module(f"mezzotint.families.{name.replace('-', '_')}").Files
    return kind


def open_files(name: str, file: Path | None = None, folder: Path | None = None) -> FlowFiles:
    folder = folder or folder_of(name)
    values = {"path": folder} if file is None else {"path": file, "config": folder}
    return files_class(name).of(ModelSettings.model_validate({"family": name, **values}))


def write_plan(place: Path, plan: Written, stored: tensor_files.Stored) -> None:
    planned.write(place, plan.tensors("transformer", stored.header()), {"transformer": stored})


def write_original(name: str, place: Path) -> Path:
    files = open_files(name)
    write_plan(place, files.plan_original(), files.stored("denoiser"))
    return place


def weights(folder: Path, part: str = "transformer") -> dict[str, Tensor]:
    return load_file(next((folder / part).glob("*.safetensors")))


def equal(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[k], b[k]) and a[k].dtype == b[k].dtype for k in a)


LARGER = {"sd3.5-large", "wan-5b", "wan-14b", "wan-i2v-a14b", "ltx-13b", "klein-9b"}
"""Models that differ from another one only in sizes."""


@pytest.mark.parametrize("model", [model for model in FULL if model not in LARGER])
def test_full_size_checkpoint_is_recognised_and_converted_by_diffusers(model: str) -> None:
    """Names and shapes only, without values."""
    name, config, _ = FULL[model]
    network, kind = family_spec(name).networks["denoiser"], files_class(name)
    own = components.shapes(network, config, where=Path("config.json"))
    own |= {"pos_embed.pos_embed": POSITIONS[model]} if model in POSITIONS else {}
    plan = original.plan(network, config, own, kind.renames, kind.written_start, kind.flat)
    tensors = {key: torch.empty(shape, device="meta") for key, shape in plan.shapes.items()}
    assert infer_diffusers_model_type(tensors) == KINDS.get(model, infer_diffusers_model_type(tensors))
    convert = SINGLE_FILE_LOADABLE_CLASSES[network.rpartition(".")[2]]["checkpoint_mapping_fn"]
    back = convert(checkpoint=dict(tensors), config=config)
    assert {key: tuple(tensor.shape) for key, tensor in back.items()} == own
    assert family_spec(name).names_tensors(tensors.keys())
    assert [spec.name for spec in specs() if spec.names_tensors(tensors.keys())] == [name]


@pytest.mark.parametrize(
    ("name", "ours", "theirs"),
    [
        ("wan", "blocks.1.attn2.to_out.0.bias", "blocks.1.cross_attn.o.bias"),
        ("wan", "blocks.1.attn1.norm_k.weight", "blocks.1.self_attn.norm_k.weight"),
        ("wan", "blocks.1.norm2.weight", "blocks.1.norm3.weight"),
        ("wan", "blocks.1.scale_shift_table", "blocks.1.modulation"),
        ("wan", "blocks.1.ffn.net.0.proj.weight", "blocks.1.ffn.0.weight"),
        ("wan", "condition_embedder.time_proj.bias", "time_projection.1.bias"),
        ("wan", "blocks.1.attn2.add_k_proj.bias", "blocks.1.cross_attn.k_img.bias"),
        ("wan", "blocks.1.attn2.norm_added_k.weight", "blocks.1.cross_attn.norm_k_img.weight"),
        ("wan", "condition_embedder.image_embedder.ff.net.2.bias", "img_emb.proj.3.bias"),
        ("ltx", "transformer_blocks.1.attn1.norm_q.weight", "transformer_blocks.1.attn1.q_norm.weight"),
        ("ltx", "time_embed.emb.timestep_embedder.linear_1.bias", "adaln_single.emb.timestep_embedder.linear_1.bias"),
        (
            "chroma",
            "distilled_guidance_layer.layers.1.linear_2.bias",
            "distilled_guidance_layer.layers.1.out_layer.bias",
        ),
        ("chroma", "distilled_guidance_layer.norms.1.weight", "distilled_guidance_layer.norms.1.scale"),
        ("chroma", "single_transformer_blocks.1.attn.to_k.weight", "single_blocks.1.linear1.weight"),
        ("z-image", "layers.1.attention.to_k.weight", "layers.1.attention.qkv.weight"),
        ("z-image", "layers.1.attention.norm_k.weight", "layers.1.attention.k_norm.weight"),
        ("z-image", "context_refiner.0.attention.to_out.0.weight", "context_refiner.0.attention.out.weight"),
        ("z-image", "all_x_embedder.2-1.weight", "x_embedder.weight"),
        ("krea2", "transformer_blocks.1.scale_shift_table", "blocks.1.mod.lin"),
        (
            "krea2",
            "text_fusion.refiner_blocks.0.attn.norm_k.weight",
            "txtfusion.refiner_blocks.0.attn.qknorm.knorm.scale",
        ),
        ("qwen-image", "transformer_blocks.1.attn.to_q.weight", "transformer_blocks.1.attn.to_q.weight"),
    ],
)
def test_written_names_are_those_of_the_original_format(name: str, ours: str, theirs: str) -> None:
    assert original.rename_tensor(ours, files_class(name).renames) == theirs


@pytest.mark.parametrize("name", [name for name in FLOW_MATCHING if name not in ("flux", "chroma")])
def test_tiny_model_round_trips_here_and_in_diffusers(name: str, tmp_path: Path) -> None:
    file, folder = write_original(name, tmp_path / "model.safetensors"), folder_of(name)
    plain = weights(folder)
    if name != "qwen-image":
        assert not {key for key in load_file(file) if key in plain} - {
            key for key in plain if original.rename_tensor(key, files_class(name).renames) == key
        }
    files = open_files(name, file)
    assert [part for part in files.parts if not files.is_in_folder(part)] == ["denoiser"]
    stored = files.stored("denoiser")
    assert equal(stored.read(list(stored.header())), plain)
    assert {key: info.shape for key, info in stored.header().items()} == {k: tuple(t.shape) for k, t in plain.items()}
    module, _, kind = files.spec.networks["denoiser"].rpartition(".")
    network: Any = getattr(importlib.import_module(module), kind).from_single_file(
        str(file), config=str(folder), subfolder="transformer", local_files_only=True
    )
    assert equal({k: t.float() for k, t in network.state_dict().items()}, {k: t.float() for k, t in plain.items()})


def test_flux_of_another_width_is_refused() -> None:
    with pytest.raises(WeightsError, match="expected 21504") as caught:
        open_files("flux").plan_original()
    assert caught.value.code == "E1479"


def thin(label: str) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """A model of its published width with one block of each kind, whose tensors have two columns."""
    name, config, _ = FULL[label]
    config = config | {"num_layers": 1, "num_single_layers": 1}
    shapes = components.shapes(family_spec(name).networks["denoiser"], config, where=Path("config.json"))
    generator = torch.Generator().manual_seed(0)
    return config, {n: torch.rand(s[0], *([2] * (len(s) - 1)), generator=generator) for n, s in shapes.items()}


@pytest.mark.parametrize("label", ["flux-dev", "chroma"])
def test_rows_of_flux_are_where_diffusers_expects_them(label: str, tmp_path: Path) -> None:
    config, tensors = thin(label)
    save_file(tensors, tmp_path / "ours.safetensors")
    name = FULL[label][0]
    network = family_spec(name).networks["denoiser"]
    plan = original.plan(network, config, {n: tuple(t.shape) for n, t in tensors.items()}, files_class(name).renames)
    write_plan(tmp_path / "file.safetensors", plan, tensor_files.InFile(tmp_path / "ours.safetensors"))
    theirs = load_file(tmp_path / "file.safetensors")
    single = torch.cat([tensors[f"single_transformer_blocks.0.{n}.weight"] for n in (
        "attn.to_q", "attn.to_k", "attn.to_v", "proj_mlp")])  # fmt: skip
    assert torch.equal(theirs["single_blocks.0.linear1.weight"], single)
    if name == "flux":
        scale, shift = tensors["norm_out.linear.weight"].chunk(2)
        assert torch.equal(theirs["final_layer.adaLN_modulation.1.weight"], torch.cat([shift, scale]))
    convert = SINGLE_FILE_LOADABLE_CLASSES[network.rpartition(".")[2]]["checkpoint_mapping_fn"]
    assert equal(convert(checkpoint=dict(theirs), config=config), tensors)


def test_complete_sd3_checkpoint_contains_vae_and_text_encoders(tmp_path: Path) -> None:
    folder = folder_of("sd3")
    tensors = load_file(write_original("sd3", tmp_path / "denoiser.safetensors"))
    vae = weights(folder, "vae")
    shape = {entry: entry.foreign_shape({n: tuple(vae[n].shape) for n in entry.ours}) for entry in base.vae(list(vae))}
    tensors |= {f"first_stage_model.{e.foreign}": e.to_foreign(vae).reshape(s) for e, s in shape.items()}
    clips = {"clip_l": "text_encoder", "clip_g": "text_encoder_2", "t5xxl": "text_encoder_3"}
    for there, part in clips.items():
        own = {f"text_encoders.{there}.transformer.{n}": t for n, t in weights(folder, part).items()}
        tensors |= own if there != "clip_l" else {n: t for n, t in own.items() if "text_projection" not in n}
    file, lean = tmp_path / "sd3_incl_clips.safetensors", Path(shutil.copytree(folder, tmp_path / "lean"))
    save_file({n: t.clone() for n, t in tensors.items()}, file)
    for part in ("transformer", "vae", "text_encoder_2", "text_encoder_3"):
        next((lean / part).glob("*.safetensors")).unlink()
    files = open_files("sd3", file, lean)
    in_folder = {part for part in files.parts if files.is_in_folder(part)}
    assert in_folder == set(files.parts) - {"denoiser", "vae", "text_encoder_2", "text_encoder_3"}
    plain = open_files("sd3")
    for part in plain.parts:
        assert equal(dict(files.network(part).state_dict()), dict(plain.network(part).state_dict())), part
    assert any("denoiser, vae, text_encoder_2, text_encoder_3" in note for note in files.notes(files.parts))
    prints = {part: files.fingerprint(part) for part in files.parts}
    assert len(set(prints.values())) == len(prints)
    assert prints["text_encoder"] == plain.fingerprint("text_encoder")


def test_complete_ltx_checkpoint_contains_the_vae(tmp_path: Path) -> None:
    folder = folder_of("ltx")
    tensors = load_file(write_original("ltx", tmp_path / "denoiser.safetensors"))
    tensors |= {f"vae.{ltx_name(name)}": tensor for name, tensor in weights(folder, "vae").items()}
    save_file(tensors, tmp_path / "ltx.safetensors")
    files = open_files("ltx", tmp_path / "ltx.safetensors")
    assert [part for part in files.parts if not files.is_in_folder(part)] == ["denoiser", "vae"]
    for part in ("denoiser", "vae"):
        stored = files.stored(part)
        assert equal(stored.read(list(stored.header())), weights(folder, files.spec.folders[part]))


def test_diffusers_names_are_read_with_and_without_prefix(tmp_path: Path) -> None:
    plain = weights(folder_of("sd3"))
    for start in ("", original.DENOISER):
        save_file({start + name: tensor for name, tensor in plain.items()}, tmp_path / "own.safetensors")
        stored = open_files("sd3", tmp_path / "own.safetensors").stored("denoiser")
        assert equal(stored.read(list(plain)), plain)


def test_float8_weights_are_read(tmp_path: Path) -> None:
    file = write_original("z-image", tmp_path / "plain.safetensors")
    eight = {n: t.to(torch.float8_e4m3fn) if t.ndim > 1 else t for n, t in load_file(file).items()}
    save_file(eight, tmp_path / "eight.safetensors")
    network = open_files("z-image", tmp_path / "eight.safetensors").network("denoiser")
    plain = weights(folder_of("z-image"))["layers.0.attention.to_k.weight"]
    assert torch.equal(network.state_dict()["layers.0.attention.to_k.weight"], plain.to(torch.float8_e4m3fn).float())


def refusal(name: str, file: Path, **values: Any) -> str:
    with pytest.raises(WeightsError) as caught:
        files_class(name).of(ModelSettings.model_validate({"family": name, "path": file, **values}))
    assert caught.value.code == "E1478", caught.value
    return caught.value.message


def test_unreadable_checkpoints_are_refused_with_the_reason(tmp_path: Path) -> None:
    file = write_original("wan", tmp_path / "wan.safetensors")
    assert "model.config=FOLDER" in refusal("wan", file)
    assert "does not contain the denoiser of Stable Diffusion 3" in refusal("sd3", file, config=folder_of("sd3"))
    scaled = tmp_path / "scaled.safetensors"
    save_file(load_file(file) | {"blocks.0.self_attn.q.scale_weight": torch.ones(1)}, scaled)
    assert "separate scales" in refusal("wan", scaled, config=folder_of("wan"))
    tensors = load_file(file)
    tensors.pop("blocks.0.ffn.0.bias")
    save_file(tensors, scaled)
    with pytest.raises(WeightsError, match="missing: 1 tensor"):
        open_files("wan", scaled).network("denoiser")


def test_rows_track_their_source() -> None:
    a, b = TensorRows((6, 4), (("a", 0, 6),)), TensorRows((2, 4), (("b", 0, 2),))
    q, k, v = torch.chunk(a, 3, dim=0)  # type: ignore[call-overload]
    assert (q.shape, k.pieces) == ((2, 4), (("a", 2, 4),))
    assert torch.cat([q, k]).pieces == (("a", 0, 4),)  # type: ignore[list-item]
    both = torch.cat([v, b, q], dim=0)  # type: ignore[list-item]
    assert both.pieces == (("a", 4, 6), ("b", 0, 2), ("a", 0, 2))
    first, rest = torch.split(both, [3, 3], dim=0)  # type: ignore[arg-type, misc]
    assert first.pieces == (("a", 4, 6), ("b", 0, 1))
    assert rest.pieces == (("b", 1, 2), ("a", 0, 2))
    assert TensorRows((6, 4, 1, 1), a.pieces)[:, :, 0, 0].shape == (6, 4)
    with pytest.raises(ValueError, match="6 rows"):
        a.split([2, 2])


def test_plan_that_loses_rows_is_an_error() -> None:
    own = {"proj_in.weight": (4, 2)}
    network = family_spec("ltx").networks["denoiser"]
    assert original.plan(network, {}, own, files_class("ltx").renames).sources == {
        "patchify_proj.weight": (("proj_in.weight", 0, 4),)
    }
    with pytest.raises(ValueError, match="other tensors"):
        original.plan(network, {}, own, [(r"^proj_in", "adaln_single")])


def test_parts_are_separated_by_their_prefix() -> None:
    shapes = {"a.x": (1,), "a.y": (2,), "b.x": (3,)}
    places = original.map_rows("clip_text", {}, shapes, FilePart("a.", converted=False), {"x"})
    assert {name: rows.pieces for name, rows in places.items()} == {"x": (("a.x", 0, 1),)}
    assert original.map_rows("clip_text", {}, shapes, FilePart("b.", converted=False), {"x", "y"}) == {}


@pytest.mark.parametrize("name", FLOW_MATCHING)
def test_file_without_denoiser_is_refused(name: str, tmp_path: Path) -> None:
    for tensors in ({}, {"foo.bar": torch.zeros(2, 3)}):
        save_file(tensors, tmp_path / "a.safetensors")
        with pytest.raises(WeightsError, match=r": does not contain the denoiser of .* in the original") as caught:
            open_files(name, tmp_path / "a.safetensors")
        assert caught.value.code == "E1478"
