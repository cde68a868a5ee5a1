"""A standalone autoencoder of SD: the same values from a folder, a model folder and a file with either names."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from mezzotint.errors import WeightsError
from mezzotint.families.sd import Family
from mezzotint.settings.sections.model import ModelSettings
from mezzotint.weights.folder import components
from mezzotint.weights.folder.model_folder import open_folder
from mezzotint.weights.keymap import ComponentMap
from mezzotint.weights.layouts import base
from mezzotint.weights.single_file.standalone import ExpectedPart, StandalonePart, open_vae

MODEL = Path(__file__).parents[2] / "parity" / "data" / "diffusers" / "tiny_sd"
WEIGHTS = MODEL / "vae" / "diffusion_pytorch_model.safetensors"
CONFIG = open_folder(MODEL).config("vae")


def open_part(path: Path) -> StandalonePart:
    where = MODEL / "vae" / "config.json"
    own = ExpectedPart("vae", CONFIG, where, components.shapes("vae", CONFIG, where=where), base.VAE)
    return open_vae(path, own, model_name="Stable Diffusion")


def in_old_names(path: Path) -> Path:
    """The model's VAE as diffusers wrote it before 0.18."""
    words = {"to_q": "query", "to_k": "key", "to_v": "value", "to_out.0": "proj_attn"}
    tensors = components.modern_names("vae", load_file(WEIGHTS))
    for new, old in words.items():
        tensors = {name.replace(f"attentions.0.{new}.", f"attentions.0.{old}."): t for name, t in tensors.items()}
    save_file(tensors, path)
    return path


def in_original_names(path: Path, start: str) -> Path:
    """The model's VAE in a standalone original-format file."""
    ours = load_file(WEIGHTS)
    shapes = components.shapes("vae", CONFIG, where=MODEL / "vae" / "config.json")
    table = ComponentMap(start, base.vae, "vae").table(list(shapes))
    tensors = components.modern_names("vae", ours)
    save_file({e.foreign: e.to_foreign(tensors).reshape(e.foreign_shape(shapes)) for e in table.entries}, path)
    return path


def test_every_form_gives_the_same_autoencoder(tmp_path: Path) -> None:
    vae_folder = shutil.copytree(MODEL / "vae", tmp_path / "vae")
    file = Path(shutil.copy(WEIGHTS, tmp_path / "plain.safetensors"))
    forms = [
        MODEL, vae_folder, file, in_old_names(tmp_path / "old.safetensors"),
        in_original_names(tmp_path / "short.safetensors", ""),
        in_original_names(tmp_path / "long.safetensors", "first_stage_model."),
    ]  # fmt: skip
    expected = components.modern_names("vae", load_file(WEIGHTS))
    pixels = torch.linspace(-1, 1, 3 * 16 * 16).reshape(1, 3, 16, 16)
    latents = Family.of(ModelSettings(path=MODEL), only=["vae"]).encode_media(pixels)
    for form in forms:
        stored = open_part(form).stored
        read = components.modern_names("vae", stored.read(tuple(stored.header())))
        assert read.keys() == expected.keys()
        assert all(torch.equal(read[name], tensor) for name, tensor in expected.items()), form
        family = Family.of(ModelSettings(path=MODEL, vae=form), only=["vae"])
        assert torch.equal(family.encode_media(pixels), latents)


def test_identity_of_latents_depends_on_weights_and_not_on_the_path(tmp_path: Path) -> None:
    vae_folder = shutil.copytree(MODEL / "vae", tmp_path / "vae")
    plain = Family.files.of(ModelSettings(path=MODEL)).media_identity()
    assert Family.files.of(ModelSettings(path=MODEL, vae=vae_folder)).media_identity() == plain
    config = json.loads((vae_folder / "config.json").read_text())
    (vae_folder / "config.json").write_text(json.dumps(config | {"scaling_factor": 0.5}))
    assert "scale=0.5" in Family.files.of(ModelSettings(path=MODEL, vae=vae_folder)).media_identity()
    long = in_original_names(tmp_path / "long.safetensors", "first_stage_model.")
    before = Family.files.of(ModelSettings(path=MODEL, vae=long)).media_identity()
    tensors = load_file(long)
    tensors["first_stage_model.encoder.conv_in.bias"] += 1e-3
    save_file(tensors, long)
    assert Family.files.of(ModelSettings(path=MODEL, vae=long)).media_identity() != before


def test_random_weights_keep_the_given_autoencoder() -> None:
    settings = ModelSettings(path=MODEL, weights="random", vae=MODEL)
    family = Family.of(settings, only=["vae"])
    for name, tensor in components.modern_names("vae", load_file(WEIGHTS)).items():
        assert torch.equal(family.parts()["vae"].state_dict()[name], tensor)
    assert [note for note in family.notes if "not random" in note] == []


@pytest.mark.parametrize(
    ("name", "code", "words"),
    [
        ("nowhere", "E1401", "does not exist"),
        ("unet/diffusion_pytorch_model.safetensors", "E1478", "a standalone denoiser"),
        ("unet", "E1406", "UNet2DConditionModel"),
        ("tokenizer/vocab.json", "E1406", "not a folder"),
        ("scheduler", "E1409", "config.json"),
    ],
)
def test_other_files_are_refused(name: str, code: str, words: str) -> None:
    with pytest.raises(WeightsError, match=words) as caught:
        open_part(MODEL / name)
    assert caught.value.code == code
    assert "model.vae" in caught.value.message or "config.json" in caught.value.message


def test_autoencoder_with_other_latents_is_refused(tmp_path: Path) -> None:
    other = shutil.copytree(MODEL / "vae", tmp_path / "vae")
    (other / "config.json").write_text(json.dumps(CONFIG | {"latent_channels": 16}))
    with pytest.raises(WeightsError, match="latents of channels 4, the other part has 16") as caught:
        Family.of(ModelSettings(path=MODEL, vae=other), only=[])
    assert caught.value.code == "E1409"
    (other / "diffusion_pytorch_model.safetensors").unlink()
    with pytest.raises(WeightsError, match="no weights") as caught:
        open_part(other)
    assert caught.value.code == "E1407"


@pytest.mark.parametrize("start", ["", "first_stage_model."])
def test_file_with_additional_layers_is_refused(start: str, tmp_path: Path) -> None:
    file = in_original_names(tmp_path / "vae.safetensors", start)
    tensors = load_file(file) | {f"{start}encoder.mid.block_3.conv1.weight": torch.zeros(1)}
    save_file(tensors | {"loss.logvar": torch.zeros(1), "epoch": torch.zeros(1)}, file)
    with pytest.raises(WeightsError, match=r"it also has 1 tensor \(.*block_3") as caught:
        open_part(file)
    assert caught.value.code == "E1478"
    save_file(
        {name: t for name, t in tensors.items() if "block_3" not in name} | {f"{start}loss.x": torch.zeros(1)}, file
    )
    open_part(file)
