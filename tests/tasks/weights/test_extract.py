"""`mezzotint extract`: what was merged comes back, what is left out is told, and what no adapter holds."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from mezzotint.errors import MezzotintError
from mezzotint.tasks.weights import extract
from support.adapter_records import FILES, SD, ran, weights
from support.rounding import within

LTX = Path(__file__).parents[2] / "parity" / "data" / "flow" / "ltx" / "model"

UNET = "unet/diffusion_pytorch_model.safetensors"


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The small model with an adapter of rank 4 in denoiser and text encoder."""
    folder = tmp_path_factory.mktemp("tuned") / "model"
    ran("merge", SD, FILES / "sd_lora_text_r4.kohya.safetensors", folder)
    return folder


@pytest.mark.parametrize("layout", ["kohya", "diffusers"])
def test_extract_recovers_a_merged_adapter(layout: str, tuned: Path, tmp_path: Path, capsys: Any) -> None:
    ran("extract", SD, tuned, tmp_path / "a.safetensors", "--rank=4", f"--layout={layout}")
    said = capsys.readouterr().out
    assert "44 layers, rank 4; of the whole change" in said
    assert f"44 layers (12 of text_encoder, 32 of unet), {(tmp_path / 'a.safetensors').stat().st_size:,} bytes" in said
    ran("merge", SD, tmp_path / "a.safetensors", tmp_path / "again")
    base, before, after = weights(SD), weights(tuned), weights(tmp_path / "again")
    for name, tensor in before.items():
        within(after[name], tensor, roundings=0 if torch.equal(base[name], tensor) else 256, name=name)


def test_extract_lists_layers_by_residual(tuned: Path, tmp_path: Path, capsys: Any) -> None:
    ran("extract", SD, tuned, tmp_path / "a.safetensors", "--rank=2", "--dtype=fp16")
    said = capsys.readouterr().out
    rows = re.findall(r"^  (\S+): rank 2, norm (\S+), left out ([\d.]+)%$", said, re.M)
    shares = [float(share) for *_, share in rows]
    assert len(rows) == 44
    assert shares == sorted(shares, reverse=True)
    assert shares[0] > 5
    name, norm, share = rows[0]
    before, after = weights(SD)[f"{name}.weight"], weights(tuned)[f"{name}.weight"]
    values = torch.linalg.svdvals(after - before)
    assert float(norm) == pytest.approx(float(values.norm()), rel=1e-3)
    assert float(share) / 100 == pytest.approx(float(values[2:].norm() / values.norm()), abs=1e-3)
    tensors = load_file(tmp_path / "a.safetensors")
    assert {t.dtype for name, t in tensors.items() if not name.endswith("alpha")} == {torch.float16}
    ran("extract", SD, tuned, tmp_path / "b.safetensors", "--rank=4", "--share=0.5")
    ranks = {int(rank) for rank in re.findall(r": rank (\d),", capsys.readouterr().out)}
    assert ranks <= {1, 2, 3}


def test_extract_writes_the_file_before_a_reader_closes_the_pipe(
    tuned: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def until_head_ends(text: str) -> None:
        if "→" not in text:
            raise BrokenPipeError

    monkeypatch.setattr(extract, "print", until_head_ends, raising=False)
    with pytest.raises(BrokenPipeError):
        extract.run([str(SD), str(tuned), str(tmp_path / "a.safetensors"), "--rank=1"])
    assert load_file(tmp_path / "a.safetensors")


def test_extract_ignores_equal_parts_and_half_precision_copies(tuned: Path, tmp_path: Path, capsys: Any) -> None:
    ran("merge", SD, FILES / "sd_lora_r4_a8.kohya.safetensors", tmp_path / "half", "--dtype=fp16")
    capsys.readouterr()
    ran("extract", SD, tmp_path / "half", tmp_path / "a.safetensors", "--rank=4")
    said = capsys.readouterr().out
    assert "128 layers (128 of unet)" in said
    assert "differ" not in said


def test_extract_reports_changed_norms_and_biases(tuned: Path, tmp_path: Path, capsys: Any) -> None:
    shutil.copytree(tuned, tmp_path / "model")
    tensors = load_file(tmp_path / "model" / UNET)
    tensors["conv_norm_out.bias"] += 1
    save_file(tensors, tmp_path / "model" / UNET, {"format": "pt"})
    ran("extract", SD, tmp_path / "model", tmp_path / "a.safetensors", "--rank=4")
    said = capsys.readouterr().out
    norm = len(tensors["conv_norm_out.bias"]) ** 0.5
    assert f"unet: 1 biases, norms and tables differ (norm {norm:.4g}, conv_norm_out.bias)" in said


def test_extract_works_with_only_a_denoiser(tuned: Path, tmp_path: Path, capsys: Any) -> None:
    ran("extract", SD, tuned / "unet", tmp_path / "a.safetensors", "--rank=4")
    assert "32 layers (32 of unet)" in capsys.readouterr().out


def test_impossible_extractions_are_refused_with_message(tuned: Path, whole_sdxl: Path, tmp_path: Path) -> None:
    (tmp_path / "taken.safetensors").touch()
    out = tmp_path / "a.safetensors"
    refused: list[tuple[list[object], str, str]] = [
        ([SD, SD, out, "--rank=4"], "E1444", "has the same layers"),
        ([SD, whole_sdxl, out, "--rank=4"], "E1451", "they are different models"),
        ([LTX, SD, out, "--rank=4"], "E1452", "another family or size"),
        ([SD, tuned, out], "E1012", "--rank=N is required"),
        ([SD, tuned, out, "--rank=0"], "E1012", "at least 1"),
        ([SD, tuned, out, "--rank=4", "--share=2"], "E1012", "from 0 to below 1"),
        ([SD, tuned, tmp_path / "folder", "--rank=4"], "E1012", "ends in .safetensors"),
        ([SD, tuned, tmp_path / "taken.safetensors", "--rank=4"], "E1410", "does not overwrite it"),
        ([FILES / "sd_lora_r4_a8.kohya.safetensors", tuned, out, "--rank=4"], "E1442", "is not a known model"),
        ([SD, FILES / "sd_lora_r4_a8.kohya.safetensors", out, "--rank=4"], "E1452", "looks like a LoRA"),
    ]
    for words, code, said in refused:
        with pytest.raises(MezzotintError) as caught:
            extract.run([str(word) for word in words])
        assert (caught.value.code, said in str(caught.value)) == (code, True), (words, str(caught.value))
        assert not out.exists()
