"""LatteT2V folders and files in every form, and what is reported about unusable ones."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from latte_folder import same, settings
from safetensors.torch import load_file, save_file

from mezzotint.assets import MODELS
from mezzotint.compat.open_sora_plan.latte import Family
from mezzotint.errors import MezzotintError, WeightsError
from mezzotint.settings import weights_formats
from mezzotint.settings.sections.model import ModelSettings
from mezzotint.weights.files import formats
from mezzotint.weights.files.tensor_files import read_header
from mezzotint.weights.folder.model_folder import shipped_folder
from mezzotint.weights.kinds import refusal
from mezzotint.weights.single_file.single_file import family_at


def test_released_folder_is_read_with_sibling_folders(released: Path) -> None:
    family = Family.of(settings(released))
    assert same(family, Family.tiny(seed=3))
    assert (family.prediction, family.grid.frames, family.schedule.num_timesteps) == ("epsilon", 4, 1000)
    torch.testing.assert_close(family.schedule.betas()[[0, -1]], torch.tensor([1e-4, 2e-2]))
    assert not family.notes
    only = Family.of(settings(released, text_encoder=None), only=["denoiser", "vae"])
    assert set(only.parts()) == {"denoiser", "vae"}
    assert sum(p.numel() for m in family.parts().values() for p in m.parameters()) < 1_000_000


@pytest.mark.usefixtures("pickles_read_here")
def test_all_file_layouts_give_the_same_model(released: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    tensors = load_file(released / "5x64x64" / "diffusion_pytorch_model.safetensors")
    plain = {n: t for n, t in tensors.items() if n != "caption_projection.y_embedding"}
    (tmp_path / "model" / "transformer").mkdir(parents=True)
    described_as = json.loads((shipped_folder("tiny-latte") / "config.json").read_text())
    described_as |= {"_class_name": "LatteTransformer3DModel", "sample_size": 8}
    described_as.pop("model_max_length")
    (tmp_path / "model" / "transformer" / "config.json").write_text(json.dumps(described_as))
    save_file(plain, tmp_path / "model" / "transformer" / "diffusion_pytorch_model.safetensors")
    torch.save({"model": tensors, "step": 3}, tmp_path / "epoch.pt")
    port = {f"network.{n}": t for n, t in tensors.items()} | {"network.temp_pos_embed": torch.zeros(1, 5, 48)}
    save_file(port, tmp_path / "port.safetensors")
    expected = Family.of(settings(released), only=["denoiser"])
    assert expected.parts()["denoiser"].config.model_max_length == 24
    config, vae = shipped_folder("tiny-latte"), released / "vae"
    for path in ("model", "epoch.pt", "port.safetensors"):
        section = settings(released, path=tmp_path / path, config=None if path == "model" else config, vae=vae)
        loaded = Family.of(section, only=["denoiser"])
        for name, tensor in loaded.parts()["denoiser"].state_dict().items():
            if name != "caption_projection.y_embedding":
                assert torch.equal(tensor, expected.parts()["denoiser"].state_dict()[name]), (path, name)
        assert bool(loaded.notes) == (path == "port.safetensors")
    assert "temp_pos_embed" in loaded.notes[0]


@pytest.mark.skipif("mindspore" not in weights_formats.names(), reason="the format is that of MindONE's folder")
def test_mindspore_checkpoint_of_the_port_is_read(released: Path, tmp_path: Path) -> None:
    tensors = load_file(released / "5x64x64" / "diffusion_pytorch_model.safetensors")
    file = tmp_path / "port.ckpt"
    mindspore = formats.format_for(file)
    assert mindspore is not None
    mindspore.write(file, [(f"network.{name}", tensor) for name, tensor in tensors.items()])
    assert family_at(file) == "latte"
    section = settings(released, path=file, config=shipped_folder("tiny-latte"), vae=released / "vae")
    expected = Family.of(settings(released), only=["denoiser"]).parts()["denoiser"].state_dict()
    loaded = Family.of(section, only=["denoiser"]).parts()["denoiser"].state_dict()
    assert all(torch.equal(tensor, expected[name]) for name, tensor in loaded.items())


def test_identities_change_with_their_files(released: Path, tmp_path: Path) -> None:
    plain = settings(released)
    parts = ("denoiser", "text_encoder", "vae", "schedule", "tokenizer")
    names = {part: Family.files.of(plain).fingerprint(part) for part in parts}
    assert len(set(names.values())) == 5
    tiled = settings(released, latte={"tiling": {"enabled": True}})
    assert Family.files.of(tiled).media_identity() != Family.files.of(plain).media_identity()
    assert Family.files.of(tiled).text_identity() == Family.files.of(plain).text_identity()
    assert Family.files.of(settings(released, max_tokens=7)).text_identity() != Family.files.of(plain).text_identity()
    assert Family.files.of(settings(released, max_tokens=7)).media_identity() == Family.files.of(plain).media_identity()
    wide = settings(released, latte={"vae_norms": "fp32"})
    assert Family.files.of(wide).media_identity() != Family.files.of(plain).media_identity()
    rope = settings(released, latte={"rope": True})
    assert Family.files.of(rope).fingerprint("denoiser") != names["denoiser"]
    shutil.copytree(released, tmp_path / "moved")
    moved = settings(tmp_path / "moved")
    assert {part: Family.files.of(moved).fingerprint(part) for part in parts} == names
    random = settings(released, weights="random")
    assert Family.files.of(random, 1).fingerprint("denoiser") != Family.files.of(random, 2).fingerprint("denoiser")
    assert Family.files.of(random).fingerprint("vae") == names["vae"]  # it has weights, which stay


def test_key_compression_layers_are_initialized_as_means(released: Path) -> None:
    family = Family.of(settings(released, latte={"compress_kv": 2}), only=["denoiser"])
    network: Any = family.parts()["denoiser"]
    shrinking = network.transformer_blocks[1].attn1
    assert torch.equal(shrinking.sr.weight, torch.full((48, 1, 2, 2), 0.25))
    assert torch.equal(network.temporal_transformer_blocks[1].attn1.sr.weight, torch.full((48, 1, 2), 0.5))
    assert torch.equal(shrinking.norm.weight, torch.ones(48))
    assert not shrinking.sr.bias.any()
    assert "is initialised" in family.notes[0]


@pytest.mark.parametrize(
    ("changes", "code", "words"),
    [
        ({"path": "."}, "E1406", "contains several models|looks like"),
        ({"path": "nowhere"}, "E1401", "does not exist"),
        ({"path": "5x64x64/diffusion_pytorch_model.safetensors", "config": "vae"}, "E1406", "CausalVAEModel"),
        ({"vae": "t5"}, "E1406|E1409", "t5"),
        ({"text_encoder": "vae"}, "E1409", "text of width"),
        ({"latte": {"rope": True, "compress_kv": 2}}, "", "exclude each other"),
    ],
)  # fmt: skip
def test_unusable_files_are_refused(released: Path, changes: dict[str, Any], code: str, words: str) -> None:
    paths = {k: released / v if isinstance(v, str) else v for k, v in changes.items()}
    with pytest.raises((MezzotintError, ValueError), match=words) as met:
        Family.of(settings(released, **paths))
    assert getattr(met.value, "code", "") in code.split("|")


def test_files_without_siblings_print_the_settings_to_write(released: Path, tmp_path: Path) -> None:
    alone = tmp_path / "alone"
    shutil.copytree(released / "5x64x64", alone / "inner")
    lonely = ModelSettings(family="latte", path=alone / "inner")
    Family.of(lonely, only=["denoiser"])
    for part, code, word in (("vae", "E1461", "model.vae"), ("text_encoder", "E1462", "model.latte.text_encoder")):
        with pytest.raises(WeightsError, match=word) as met:
            Family.of(lonely, only=[part])
        assert met.value.code == code
        assert len(Family.files.of(lonely).fingerprint(part)) == 64
    (alone / "inner" / "config.json").unlink()
    file = ModelSettings(family="latte", path=alone / "inner" / "diffusion_pytorch_model.safetensors")
    with pytest.raises(WeightsError, match="latte-65f") as met:
        Family.of(file, only=["denoiser"])
    assert met.value.code == "E1460"
    full = file.model_copy(update={"config": MODELS / "latte-65f"})
    with pytest.raises(WeightsError, match=r"missing|of another shape") as met:
        Family.of(full, only=["denoiser"])
    assert met.value.code == "E1405"


def test_older_autoencoder_is_refused(released: Path, tmp_path: Path) -> None:
    shutil.copytree(released, tmp_path / "old")
    path = tmp_path / "old" / "vae" / "config.json"
    path.write_text(path.read_text().replace("AttnBlock3DFix", "AttnBlock3D"))
    with pytest.raises(WeightsError, match=r"v1\.0") as met:
        Family.of(settings(tmp_path / "old"))
    assert met.value.code == "E1409"


def test_full_size_parts_are_described_without_allocation(tmp_path: Path) -> None:
    xxl = json.loads((shipped_folder("tiny-latte") / "text_encoder" / "config.json").read_text()) | {
        "d_ff": 10240, "d_kv": 64, "d_model": 4096, "num_heads": 64, "num_layers": 24, "vocab_size": 32128,
    }  # fmt: skip
    (tmp_path / "t5").mkdir()
    (tmp_path / "t5" / "config.json").write_text(json.dumps(xxl))
    from mezzotint.tasks.check.meta_model import build_described_model

    section = ModelSettings(family="latte", path=MODELS / "latte-221f", latte={"text_encoder": tmp_path / "t5"})
    parts = build_described_model(Family, section)[1].parts()
    counts = {part: sum(p.numel() for p in module.parameters()) for part, module in parts.items()}
    assert counts == {"denoiser": 1_057_246_880, "text_encoder": 4_762_310_656, "vae": 246_859_499}
    assert len(parts["vae"].state_dict()) == 260
    names = parts["text_encoder"].state_dict()
    assert len(names) == 2 + 24 * 9 + 1
    assert {"shared.weight", "encoder.block.23.layer.1.DenseReluDense.wi_1.weight"} < set(names)


def test_files_are_recognized_as_latte(released: Path, tmp_path: Path) -> None:
    file = released / "5x64x64" / "diffusion_pytorch_model.safetensors"
    save_file({f"network.{n}": t for n, t in load_file(file).items()}, tmp_path / "port.safetensors")
    for place in (released / "5x64x64", file, tmp_path / "port.safetensors", shipped_folder("tiny-latte")):
        assert family_at(place) == "latte"
    assert family_at(shipped_folder("tiny-sd")) == "sd"
    refused = refusal(read_header(file), "sd")
    assert refused is not None
    assert refused.remedy == "set model.family=latte"
