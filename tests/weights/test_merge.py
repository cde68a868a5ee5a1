"""Merging model files: replaced tensor by tensor or summed, read in chunks."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from mezzotint.errors import WeightsError
from mezzotint.weights.layouts import sd
from mezzotint.weights.merge import Base, Merge, file_plan, open_base, open_other
from mezzotint.weights.single_file import planned
from support.sd_folder import FOLDER

NAME = "conv_in.weight"


@pytest.fixture(scope="module")
def base() -> Base:
    return open_base(FOLDER)


def part_file(path: Path, base: Base, value: float) -> Path:
    """A file with one constant tensor of the denoiser."""
    save_file({NAME: torch.full(base.shapes["unet"][NAME], value)}, path)
    return path


def test_last_file_with_a_tensor_wins(base: Base, tmp_path: Path) -> None:
    others = [open_other(part_file(tmp_path / f"{value}.safetensors", base, value), base) for value in (1.0, 2.0)]
    merged = Merge(base, others)
    tensors = merged.read("unet", [NAME, "conv_out.bias"])
    assert tensors[NAME].unique().tolist() == [2.0]
    assert torch.equal(
        tensors["conv_out.bias"], base.source.components["unet"].read(["conv_out.bias"])["conv_out.bias"]
    )
    assert merged.keys()["unet"][NAME] == f"{tmp_path / '2.0.safetensors'}: {NAME}"
    assert merged.header("unet")[NAME].dtype == "F32"
    assert any(line.startswith("unet: ") and "1 tensors from" in line for line in merged.report())


def test_weighted_sum_requires_complete_models(base: Base, tmp_path: Path) -> None:
    other = open_other(FOLDER, base)
    tensors = Merge(base, [other], shares=(0.25, 0.5)).read("vae", ["encoder.conv_in.bias"])
    plain = base.source.components["vae"].read(["encoder.conv_in.bias"])
    assert torch.allclose(tensors["encoder.conv_in.bias"], 0.75 * plain["encoder.conv_in.bias"])
    with pytest.raises(WeightsError, match="give a complete model") as caught:
        Merge(base, [open_other(part_file(tmp_path / "x.safetensors", base, 1.0), base)], shares=(0.5, 0.5))
    assert caught.value.code == "E1405"


def test_file_is_planned_and_read_in_chunks(base: Base, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planned, "CHUNK", 200_000)
    merged, counts = Merge(base, []), list[int]()
    plan = file_plan(merged, sd.LAYOUT)
    tensors = list(planned.read_in_order(merged.stored, plan, counts.append))
    assert [(one.name, one.shape) for one in plan] == [(name, tuple(t.shape)) for name, t in tensors]
    assert counts == sorted(counts)
    assert counts[-1] == len(plan) > len(counts) > 1
