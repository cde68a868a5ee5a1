"""`convert` for models on straight paths: from a folder to the file that their makers publish, and back."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from mezzotint.cli import main

RECORDS = Path(__file__).parents[2] / "parity" / "data" / "flow"


def convert(*words: object) -> int:
    return main(["convert", *map(str, words)])


def files_of(folder: Path) -> dict[str, bytes]:
    return {
        str(p.relative_to(folder)): p.read_bytes()
        for p in folder.rglob("*")
        if p.is_file() and p.suffix != ".json" and p.name != "merges.txt"
    }


def test_folder_to_file_to_folder_changes_no_tensor(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, file, back = RECORDS / "wan" / "model", tmp_path / "wan.safetensors", tmp_path / "back"
    assert convert(folder, file) == 0
    said = capsys.readouterr().out
    assert "left out, since such a file has the denoiser alone: text_encoder, vae" in said
    assert "head.modulation" in load_file(file)
    assert convert(file, back, f"--config={folder}") == 0
    said = capsys.readouterr().out
    assert "wan.safetensors holds denoiser; all else is that of" in said
    assert "opens with WanPipeline" in said
    plain, tensors = (load_file(f / "transformer" / "diffusion_pytorch_model.safetensors") for f in (folder, back))
    assert all(torch.equal(tensors[name], tensor) for name, tensor in plain.items())
    assert convert(file, tmp_path / "again.safetensors", f"--config={folder}") == 0
    assert (tmp_path / "again.safetensors").read_bytes() == file.read_bytes()
    names = files_of(folder).keys()
    assert names == files_of(back).keys()
    others = [name for name in names if not name.startswith("transformer/")]
    assert all(files_of(folder)[name] == files_of(back)[name] for name in others)


@pytest.mark.slow
def test_a_type_is_given_to_every_part(tmp_path: Path) -> None:
    folder = RECORDS / "sd3" / "model"
    assert convert(folder, tmp_path / "half", "--dtype=bf16") == 0
    for part in ("transformer", "vae", "text_encoder", "text_encoder_3"):
        (file,) = (tmp_path / "half" / part).glob("*.safetensors")
        before, after = load_file(folder / part / file.name), load_file(file)
        assert before.keys() == after.keys()
        assert all(torch.equal(after[name], tensor.bfloat16()) for name, tensor in before.items())
    config = json.loads((tmp_path / "half" / "text_encoder" / "config.json").read_text())
    assert {config.get("dtype"), config.get("torch_dtype")} & {"float32"}
    tensors = load_file(tmp_path / "half" / "transformer" / "diffusion_pytorch_model.safetensors")
    assert convert(folder, tmp_path / "half.safetensors", "--dtype=bf16") == 0
    single = load_file(tmp_path / "half.safetensors")
    key = "model.diffusion_model.x_embedder.proj.weight"
    assert torch.equal(single[key], tensors["pos_embed.proj.weight"])


def test_what_is_not_written_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for source, target, code in (("flux", "flux.safetensors", "E1479"), ("wan", "wan.ckpt", "E1479")):
        assert convert(RECORDS / source / "model", tmp_path / target) != 0
        assert code in capsys.readouterr().err
        assert not (tmp_path / target).exists()
    assert convert(RECORDS / "wan" / "model", tmp_path / "wan.safetensors") == 0
    assert convert(tmp_path / "wan.safetensors", tmp_path / "folder") != 0
    assert "--config=FOLDER" in capsys.readouterr().err
    assert not (tmp_path / "folder").exists()
