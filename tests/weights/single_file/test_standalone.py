"""Autoencoders and text encoders in standalone files, as ComfyUI stores them next to a denoiser's file."""

from __future__ import annotations

import importlib
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from diffusers.loaders.single_file_model import SINGLE_FILE_LOADABLE_CLASSES
from safetensors.torch import load_file, save_file
from torch import Tensor

from mezzotint.errors import WeightsError
from mezzotint.families.shared.flow_files import FlowFiles
from mezzotint.settings.families.base import family_spec
from mezzotint.settings.sections.model import ModelSettings
from mezzotint.weights.folder import components
from mezzotint.weights.single_file import standalone
from mezzotint.weights.single_file.standalone import ExpectedPart
from support.flow_folders import tiny_5b
from support.original_names import as_makers, in_ldm, ltx_name
from support.sd_folder import edit

RECORDS = Path(__file__).parents[2] / "parity" / "data" / "flow"
KL = {"block_out_channels": [128, 256, 512, 512], "layers_per_block": 2, "latent_channels": 16, "norm_num_groups": 32,
      "down_block_types": ["DownEncoderBlock2D"] * 4, "up_block_types": ["UpDecoderBlock2D"] * 4,
      "use_quant_conv": False, "use_post_quant_conv": False}  # fmt: skip
PUBLISHED: dict[str, tuple[str, dict[str, Any], int]] = {
    "flux": ("flux", KL, 244), "sd3": ("sd3", KL, 244), "wan": ("wan", {}, 194), "qwen-image": ("qwen-image", {}, 194),
}  # fmt: skip
"""Autoencoders in their published sizes: the family, the configuration, tensors in the original-format file."""


def folder_of(name: str) -> Path:
    return RECORDS / name.replace("-", "_").replace("flux2", "flux2_klein") / "model"


def open_files(name: str, folder: Path | None = None, **values: Any) -> FlowFiles:
    kind: type[FlowFiles] = importlib.import_module(f"mezzotint.families.{name.replace('-', '_')}").Files
    return kind.of(ModelSettings.model_validate({"family": name, "path": folder or folder_of(name), **values}))


def refusal(name: str, code: str, **values: Any) -> str:
    with pytest.raises(WeightsError) as caught:
        open_files(name, **values)
    assert caught.value.code == code, caught.value
    return caught.value.message


def weights(folder: Path, part: str) -> dict[str, Tensor]:
    return load_file(next((folder / part).glob("*.safetensors")))


def equal(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a)


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_autoencoders_are_converted_like_in_diffusers(name: str) -> None:
    """Only names and shapes of the published sizes, without values."""
    family, config, count = PUBLISHED[name]
    network = family_spec(family).networks["vae"]
    own = components.shapes(network, config, where=Path("config.json"))
    file = as_makers(family, {key: torch.empty(shape, device="meta") for key, shape in own.items()})
    assert len(file) == len(own) == count
    kind = {"vae": "AutoencoderKL"}.get(network, "AutoencoderKLWan")
    convert = SINGLE_FILE_LOADABLE_CLASSES[kind]["checkpoint_mapping_fn"]
    assert {key: tuple(t.shape) for key, t in convert(checkpoint=dict(file), config=config).items()} == own
    expected = ExpectedPart(network, config, Path("config.json"), own)
    shapes = {key: tuple(tensor.shape) for key, tensor in file.items()}
    places = standalone._map_rows_in_original_format(expected, shapes)
    assert {key: rows.shape for key, rows in places.items()} == own


def wan_folder(place: Path) -> Path:
    """A tiny Wan whose autoencoder has as many blocks as the published one."""
    from diffusers.models.autoencoders.autoencoder_kl_wan import AutoencoderKLWan

    folder = Path(shutil.copytree(folder_of("wan"), place))
    torch.manual_seed(3)
    vae = AutoencoderKLWan(base_dim=3, z_dim=16, dim_mult=[1, 2, 4, 4], num_res_blocks=2)
    shutil.rmtree(folder / "vae")
    vae.save_pretrained(folder / "vae")
    return folder


@pytest.mark.parametrize("name", ["flux", "sd3", "z-image", "wan"])
def test_original_format_autoencoder_is_loaded(name: str, tmp_path: Path) -> None:
    folder = wan_folder(tmp_path / "model") if name == "wan" else Path(shutil.copytree(folder_of(name), tmp_path / "m"))
    plain = weights(folder, "vae")
    changed = {key: tensor * 1.5 for key, tensor in plain.items()}
    file = tmp_path / "ae.safetensors"
    save_file({key: t.contiguous() for key, t in as_makers(name, changed).items()}, file)
    own = open_files(name, folder)
    before = own.media_identity()
    next((folder / "vae").glob("*.safetensors")).unlink()  # the configuration is enough
    files = open_files(name, folder, vae=file)
    assert equal(dict(files.network("vae").state_dict()), changed)
    assert [part for part in files.parts if not files.is_in_folder(part)] == ["vae"]
    assert list(files.notes(["vae"])) == [f"vae: {file} replaces the model's own"]
    assert files.media_identity() != before
    assert files.fingerprint("denoiser") == own.fingerprint("denoiser")
    kind = SINGLE_FILE_LOADABLE_CLASSES["AutoencoderKLWan" if name == "wan" else "AutoencoderKL"]
    theirs = kind["checkpoint_mapping_fn"](checkpoint=load_file(file), config=dict(files.configs["vae"]))
    assert equal({key: t.reshape(changed[key].shape) for key, t in theirs.items()}, changed)


@pytest.mark.parametrize("start", ["", "vae."])
def test_ltx_autoencoder_is_read_with_and_without_prefix(start: str, tmp_path: Path) -> None:
    plain = weights(folder_of("ltx"), "vae")
    save_file({start + ltx_name(name): tensor for name, tensor in plain.items()}, tmp_path / "vae.safetensors")
    files = open_files("ltx", vae=tmp_path / "vae.safetensors")
    assert equal(files.stored("vae").read(list(plain)), plain)


@pytest.mark.parametrize("name", ["ltx", "flux"])
def test_diffusers_autoencoder_is_read_from_file_and_folder(name: str, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(folder_of(name), tmp_path / "other"))
    file = next((folder / "vae").glob("*.safetensors"))
    changed = {key: t * 2 if t.is_floating_point() else t for key, t in load_file(file).items()}
    save_file(changed, file)
    for path in (file, folder / "vae", folder):
        assert equal(open_files(name, vae=path).stored("vae").read(list(changed)), changed)
    assert open_files(name, vae=folder).fingerprint("vae") == open_files(name, folder).fingerprint("vae")


def encoder_file(name: str, part: str, place: Path) -> Path:
    """A text encoder as ComfyUI stores it: under the names of transformers, with the extra tensors of its files."""
    tensors = weights(folder_of(name), part)
    more: dict[str, Tensor] = {}
    if name in ("qwen-image", "flux2", "z-image"):
        tensors = {re.sub(r"^(model\.)?(language_model\.)?", "model.", key): t for key, t in tensors.items()}
        tensors = {key: t for key, t in tensors.items() if not re.search(r"visual|lm_head", key)}
        more = {"lm_head.weight": torch.zeros(3), "visual.blocks.0.attn.proj.weight": torch.zeros(3)}
    if name == "wan":
        more = {"spiece_model": torch.zeros(9, dtype=torch.uint8)}
    if part == "text_encoder" and name in ("flux", "sd3"):
        more = {"text_model.embeddings.position_ids": torch.arange(77)[None], "logit_scale": torch.tensor(4.6)}
    save_file({key: t.clone() for key, t in tensors.items()} | more, place)
    return place


@pytest.mark.parametrize(("name", "parts"), [
    ("sd3", ("text_encoder", "text_encoder_2", "text_encoder_3")),
    ("wan", ("text_encoder",)), ("qwen-image", ("text_encoder",)), ("flux2", ("text_encoder",)),
])  # fmt: skip
def test_text_encoders_are_recognised_by_their_tensors(name: str, parts: tuple[str, ...], tmp_path: Path) -> None:
    plain = open_files(name)
    paths = [encoder_file(name, part, tmp_path / f"{part}.safetensors") for part in parts]
    folder = Path(shutil.copytree(folder_of(name), tmp_path / "lean"))
    for part in parts:
        next((folder / part).glob("*.safetensors")).unlink()
    files = open_files(name, folder, over=paths[::-1])
    assert {part: file.path for part, file in files.standalone.items()} == dict(zip(parts, paths, strict=True))
    for part in parts:
        assert equal(dict(files.network(part).state_dict()), dict(plain.network(part).state_dict())), part
    assert files.text_identity() != plain.text_identity()


def test_autoencoders_without_conversion_are_refused(tmp_path: Path) -> None:
    """FLUX.2, and Wan 2.2 TI2V 5B, whose blocks are nested: diffusers converts only those of 2.1."""
    file, five = tmp_path / "vae.safetensors", tiny_5b(folder_of("wan"), tmp_path / "5b")
    plain = weights(five, "vae")
    makers = {
        re.sub(r"\.(down|up)_blocks\.(\d)\.resnets\.", r".\1samples.\2.\1samples.", n): t for n, t in plain.items()
    }
    save_file({as_makers("wan", {n: t}).popitem()[0]: t for n, t in makers.items()}, file)
    with pytest.raises(WeightsError, match="is not the autoencoder of Wan") as caught:
        open_files("wan", five, vae=file)
    assert caught.value.code == "E1478"
    save_file({n: t.contiguous() for n, t in in_ldm(weights(folder_of("flux"), "vae")).items()}, file)
    assert "diffusers cannot convert an original-format autoencoder of FLUX.2" in refusal("flux2", "E1478", vae=file)


def test_wrong_component_files_are_refused_with_the_reason(tmp_path: Path) -> None:
    file = tmp_path / "ae.safetensors"
    save_file({key: t.contiguous() for key, t in in_ldm(weights(folder_of("flux"), "vae")).items()}, file)
    message = refusal("flux2", "E1478", vae=file)
    assert message == (
        f"model.vae: {file}: diffusers cannot convert an original-format autoencoder of FLUX.2; give a folder in "
        "diffusers' layout, or leave model.vae out to use the model's own"
    )
    message = refusal("wan", "E1478", vae=file)
    assert f"is not the autoencoder of Wan that {folder_of('wan') / 'vae' / 'config.json'} describes" in message
    encoder = encoder_file("flux", "text_encoder_2", tmp_path / "t5.safetensors")
    assert "is not the autoencoder of FLUX.1" in refusal("flux", "E1478", vae=encoder)
    message = refusal("flux", "E1478", over=[file])
    assert (
        "is not one of the encoders of FLUX.1 (text_encoder, text_encoder_2): it is a standalone autoencoder" in message
    )
    again = Path(shutil.copy(encoder, tmp_path / "again.safetensors"))
    message = refusal("flux", "E1478", over=[encoder, again])
    assert message == f"model.over: {again} and {encoder} are both the text_encoder_2 of FLUX.1; keep one"
    lean = load_file(encoder)
    lean.pop("encoder.final_layer_norm.weight")
    save_file(lean, tmp_path / "lean.safetensors")
    message = refusal("flux", "E1478", over=[tmp_path / "lean.safetensors"])
    assert "1 tensor (encoder.final_layer_norm.weight) of text_encoder_2 are missing or have another shape" in message
    save_file(load_file(encoder) | {"scaled_fp8": torch.zeros(2)}, tmp_path / "scaled.safetensors")
    assert "separate scales" in refusal("flux", "E1478", over=[tmp_path / "scaled.safetensors"])
    assert "does not exist" in refusal("flux", "E1401", vae=tmp_path / "none.safetensors")
    (tmp_path / "vae.pth").touch()
    assert "is not a folder or a .safetensors file" in refusal("flux", "E1406", vae=tmp_path / "vae.pth")
    message = refusal("flux", "E1406", vae=folder_of("wan"))
    assert "contains AutoencoderKLWan, this model has AutoencoderKL; give the folder of one" in message


def test_autoencoder_with_other_latents_is_refused(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(folder_of("flux"), tmp_path / "other"))
    edit(folder / "vae" / "config.json", latent_channels=8)
    assert "latents of channels" in refusal("flux", "E1409", vae=folder)


def test_random_weights_keep_the_given_autoencoder(tmp_path: Path) -> None:
    files = open_files("flux", weights="random", vae=folder_of("flux") / "vae")
    assert equal(dict(files.network("vae").state_dict()), weights(folder_of("flux"), "vae"))
    kind = type(files)
    assert not kind.from_configs(files.settings).standalone
