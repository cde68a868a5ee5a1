"""Model folders: finding weights, copying components, refusing damaged files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from mezzotint.errors import WeightsError
from mezzotint.weights.folder import model_folder


def _file(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    save_file({"a": torch.ones(1)}, path)
    return path


def test_plain_file_is_preferred_to_a_variant(tmp_path: Path) -> None:
    variant = _file(tmp_path / "diffusion_pytorch_model.fp16.safetensors")
    assert model_folder.find_weights(tmp_path) == model_folder.StoredWeights(variant, "fp16")
    plain = _file(tmp_path / "diffusion_pytorch_model.safetensors")
    assert model_folder.find_weights(tmp_path) == model_folder.StoredWeights(plain)


def test_shards_are_found_by_their_index(tmp_path: Path) -> None:
    index = tmp_path / "model.safetensors.index.json"
    index.write_text("{}")
    assert model_folder.find_weights(tmp_path) == model_folder.StoredWeights(index)


def test_missing_weights_are_no_error_but_pickled_ones_are(tmp_path: Path) -> None:
    assert model_folder.find_weights(tmp_path) is None
    (tmp_path / "pytorch_model.bin").write_bytes(b"\x80\x02.")
    with pytest.raises(WeightsError, match=r"only pytorch_model\.bin, a pickle") as caught:
        model_folder.find_weights(tmp_path)
    assert caught.value.code == "E1408"


@pytest.mark.parametrize(
    ("content", "reason"),
    [("{", "not JSON"), ("[1]", "JSON object"), ("[" * 100_000, "not JSON"), ("{" + " " * 4_000_000 + "}", "larger")],
)
def test_damaged_configuration_is_reported(tmp_path: Path, content: str, reason: str) -> None:
    (tmp_path / "model_index.json").write_text(content)
    with pytest.raises(WeightsError, match=reason) as caught:
        model_folder.open_folder(tmp_path)
    assert caught.value.code == "E1409"
    assert "model_index.json" in caught.value.message


def test_missing_folder_is_reported(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match=r"model\.path") as caught:
        model_folder.open_folder(tmp_path / "nowhere")
    assert caught.value.code == "E1401"


def test_unknown_name_error_lists_the_searched_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(WeightsError) as caught:
        model_folder.open_folder(Path("sd15"))
    for words in (
        f"in {tmp_path}", "next to the recipe", "`mezzotint ls models`", "a model's folder or file",
        "`hf download OWNER/NAME` downloads one",
    ):  # fmt: skip
        assert words in caught.value.message


def test_local_path_is_removed_from_configurations(tmp_path: Path) -> None:
    (tmp_path / "unet").mkdir()
    (tmp_path / "unet" / "config.json").write_text(json.dumps({"_name_or_path": "/home/me/x", "in_channels": 4}))
    (tmp_path / "model_index.json").write_text("{}")
    assert model_folder.open_folder(tmp_path).config("unet") == {"in_channels": 4}


def test_copying_skips_code_pickles_and_paths(tmp_path: Path) -> None:
    source = tmp_path / "vae"
    kept = _file(source / "diffusion_pytorch_model.safetensors")
    for name in ("diffusion_pytorch_model.bin", "modeling.py", ".cache"):
        (source / name).write_text("x")
    (source / "config.json").write_text(json.dumps({"_name_or_path": "/home/me/x", "a": 1}))
    (source / "notes.json").write_bytes(b'{ "as":\r\n "it is" }')
    model_folder.copy_component(source, tmp_path / "copy")
    copied = {p.name: p.read_bytes() for p in (tmp_path / "copy").iterdir()}
    assert copied.keys() == {"diffusion_pytorch_model.safetensors", "config.json", "notes.json"}
    assert copied[kept.name] == kept.read_bytes()
    assert copied["notes.json"] == b'{ "as":\r\n "it is" }'
    assert json.loads(copied["config.json"]) == {"a": 1}


def test_copying_keeps_a_pickle_without_alternative(tmp_path: Path) -> None:
    (tmp_path / "checker").mkdir()
    (tmp_path / "checker" / "pytorch_model.bin").write_text("x")
    model_folder.copy_component(tmp_path / "checker", tmp_path / "copy")
    assert [p.name for p in (tmp_path / "copy").iterdir()] == ["pytorch_model.bin"]


def test_copying_renames_the_only_variant(tmp_path: Path) -> None:
    _file(tmp_path / "vae" / "diffusion_pytorch_model.fp16.safetensors")
    model_folder.copy_component(tmp_path / "vae", tmp_path / "copy")
    assert [p.name for p in (tmp_path / "copy").iterdir()] == ["diffusion_pytorch_model.safetensors"]


def test_tokenizer_gets_vocab_and_merges_files(tmp_path: Path) -> None:
    model = {"vocab": {"a": 0, "b": 1, "ab</w>": 2}, "merges": [["a", "b</w>"], "a b"]}
    (tmp_path / "tokenizer.json").write_text(json.dumps({"model": model}))
    model_folder.complete_tokenizer(tmp_path)
    assert json.loads((tmp_path / "vocab.json").read_text()) == model["vocab"]
    assert (tmp_path / "merges.txt").read_text() == "#version: 0.2\na b</w>\na b\n"


def test_shipped_model_is_found_by_name() -> None:
    assert "tiny-sd" in model_folder.shipped_names()
    assert (model_folder.shipped_folder("tiny-sd") / "unet" / "config.json").is_file()
    with pytest.raises(WeightsError, match="tiny-sd"):
        model_folder.shipped_folder("huge-sd")


def test_existing_folder_is_not_overwritten(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match="already exists") as caught, model_folder.new_folder(tmp_path):
        raise AssertionError("entered")
    assert caught.value.code == "E1410"


def test_folder_created_meanwhile_is_not_overwritten(tmp_path: Path) -> None:
    def write() -> None:
        with model_folder.new_folder(tmp_path / "a" / "new") as aside:
            (aside / "x").write_text("ours")
            (tmp_path / "a" / "new").mkdir()

    with pytest.raises(WeightsError, match="already exists"):
        write()
    assert [path.name for path in (tmp_path / "a").rglob("*")] == ["new"]
