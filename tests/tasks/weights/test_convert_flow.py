"""`convert` for flow-matching models: from a folder to an original-format checkpoint, and back."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from mezzotint.cli import main
from mezzotint.errors import WeightsError
from mezzotint.families.wan import Files
from mezzotint.settings.sections.model import ModelSettings
from support.flow_folders import tiny_a14b
from support.numbers_format import add_numbers_format

RECORDS = Path(__file__).parents[2] / "parity" / "data" / "flow"


def convert(*words: object) -> int:
    return main(["convert", *map(str, words)])


def weights_of(folder: Path, part: str) -> dict[str, torch.Tensor]:
    return load_file(next((folder / part).glob("*.safetensors")))


def files_of(folder: Path) -> dict[str, bytes]:
    return {
        str(p.relative_to(folder)): p.read_bytes()
        for p in folder.rglob("*")
        if p.is_file() and p.suffix != ".json" and p.name != "merges.txt"
    }


def test_flow_folder_to_file_to_folder_keeps_every_tensor(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, file, back = RECORDS / "wan" / "model", tmp_path / "wan.safetensors", tmp_path / "back"
    assert convert(folder, file) == 0
    said = capsys.readouterr().out
    assert "left out, since a single file cannot contain them: text_encoder, vae" in said
    assert "head.modulation" in load_file(file)
    assert convert(file, back, f"--config={folder}") == 0
    said = capsys.readouterr().out
    assert "wan.safetensors holds denoiser; the rest is read from" in said
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
def test_dtype_option_applies_to_every_part(tmp_path: Path) -> None:
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


def test_two_denoisers_become_two_files_and_are_read_together(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, high, low = (tmp_path / name for name in ("a14b", "wan2.2_high_noise.safetensors", "low.safetensors"))
    tiny_a14b(RECORDS / "wan" / "model", folder)
    assert convert(folder, high) != 0
    assert "add --part=denoiser for the high-noise one or --part=denoiser_2" in capsys.readouterr().err
    plain = {part: weights_of(folder, part) for part in ("transformer", "transformer_2")}
    for file, part in ((high, "denoiser"), (low, "denoiser_2")):
        assert convert(folder, file, f"--part={part}") == 0
    assert torch.equal(load_file(low)["head.modulation"], plain["transformer_2"]["scale_shift_table"])
    assert torch.equal(load_file(high)["head.modulation"], plain["transformer"]["scale_shift_table"])
    lean = Path(shutil.copytree(folder, tmp_path / "lean"))
    for part in plain:
        next((lean / part).glob("*.safetensors")).unlink()

    def opened(**words: Any) -> Files:
        return Files.of(ModelSettings.model_validate({"family": "wan", "config": lean, **words}))

    for train in ("denoiser", "denoiser_2", ("denoiser", "denoiser_2")):
        files = opened(path=high, wan={"low_noise": low}, train=train)
        assert {part for part in files.parts if not files.is_in_folder(part)} == {"denoiser", "denoiser_2"}
        for part, name in (("denoiser", "transformer"), ("denoiser_2", "transformer_2")):
            tensors = files.network(part).state_dict()
            assert all(torch.equal(tensors[key], tensor) for key, tensor in plain[name].items())
        assert files.fingerprint("denoiser") != files.fingerprint("denoiser_2")
    files = opened(path=folder, config=None, wan={"low_noise": high})
    assert torch.equal(files.network("denoiser_2").scale_shift_table, plain["transformer"]["scale_shift_table"])
    for words, code, said in (
        (
            {"path": low.rename(tmp_path / "low_noise.safetensors"), "wan": {"low_noise": high}},
            "E1478",
            "by their names",
        ),
        ({"path": RECORDS / "wan" / "model", "config": None, "wan": {"low_noise": high}}, "E1481", "has one denoiser"),
        ({"path": high, "wan": {"low_noise": tmp_path / "none.safetensors"}}, "E1401", "none.safetensors"),
    ):
        with pytest.raises(WeightsError, match=said) as caught:
            opened(**words)
        assert caught.value.code == code


def test_two_denoiser_files_become_one_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tiny_a14b(RECORDS / "wan" / "model", tmp_path / "a14b")
    files = {part: tmp_path / f"{part}.safetensors" for part in ("denoiser", "denoiser_2")}
    for part, file in files.items():
        assert convert(folder, file, f"--part={part}") == 0
    made = [tmp_path / "first", tmp_path / "both"]
    assert convert(files["denoiser"], made[0], f"--config={folder}") == 0
    assert convert(files["denoiser_2"], made[1], f"--config={made[0]}", "--part=denoiser_2") == 0
    for part in ("transformer", "transformer_2"):
        plain, again = weights_of(folder, part), weights_of(made[1], part)
        assert plain.keys() == again.keys()
        assert all(torch.equal(again[name], tensor) for name, tensor in plain.items())
    capsys.readouterr()
    assert convert(RECORDS / "sd3" / "model", tmp_path / "sd3.safetensors", "--part=denoiser_2") == 2
    assert "E1012" in capsys.readouterr().err
    assert convert("tiny-sd", tmp_path / "sd.safetensors", "--part=denoiser") == 2
    assert "--part is only for Wan 2.2 A14B; leave it out" in capsys.readouterr().err


def test_unsupported_flow_conversions_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    add_numbers_format(tmp_path / "packages", monkeypatch)
    for source, target, code in (("flux", "flux.safetensors", "E1479"), ("wan", "wan.numbers", "E1479")):
        assert convert(RECORDS / source / "model", tmp_path / target) != 0
        assert code in capsys.readouterr().err
        assert not (tmp_path / target).exists()
    assert convert(RECORDS / "wan" / "model", tmp_path / "wan.safetensors") == 0
    assert convert(tmp_path / "wan.safetensors", tmp_path / "folder") != 0
    assert "--config=FOLDER" in capsys.readouterr().err
    assert not (tmp_path / "folder").exists()


@pytest.mark.parametrize(("task", "pipeline"), [("edit", "FluxKontextPipeline"), ("text", "FluxPipeline")])
def test_task_of_flux_names_the_pipeline(
    task: str, pipeline: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A file of Kontext has the tensors of dev, so nothing else tells them apart."""
    assert convert(RECORDS / "flux" / "model", tmp_path / "model", f"--task={task}") == 0
    assert f"opens with {pipeline}.from_pretrained" in capsys.readouterr().out
    assert json.loads((tmp_path / "model" / "model_index.json").read_text())["_class_name"] == pipeline
    assert convert(RECORDS / "wan" / "model", tmp_path / "other", f"--task={task}") == 2
    assert "--task is only for FLUX.1; leave it out" in capsys.readouterr().err
