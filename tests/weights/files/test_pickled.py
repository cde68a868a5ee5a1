"""Pickled model files: their tensors are converted bitwise, their code never runs.

Most files are read by the same program in this process (`pickles_read_here`), one in a separate process.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import types
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from mezzotint.errors import WeightsError
from mezzotint.weights.files import pickled
from support.pickles import Save, save_legacy, save_raw, save_zip


@pytest.fixture
def lightning(monkeypatch: pytest.MonkeyPatch) -> type:
    """A class under the name that Lightning's checkpoints refer to; it exists only in this test."""
    name = "pytorch_lightning.callbacks.model_checkpoint"
    for package in ("pytorch_lightning", "pytorch_lightning.callbacks", name):
        monkeypatch.setitem(sys.modules, package, types.ModuleType(package))
    kind = type("ModelCheckpoint", (), {"__module__": name})
    monkeypatch.setattr(sys.modules[name], "ModelCheckpoint", kind, raising=False)
    return kind


def test_separate_process_converts_tensors(tmp_path: Path) -> None:
    torch.save({"state_dict": {"a": torch.ones(2)}}, tmp_path / "x.ckpt")
    pickled.convert(tmp_path / "x.ckpt", tmp_path / "x.safetensors")
    assert torch.equal(load_file(tmp_path / "x.safetensors")["a"], torch.ones(2))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["x.ckpt", "x.safetensors"]


@pytest.mark.usefixtures("pickles_read_here")
@pytest.mark.parametrize("save", [save_zip, save_legacy])
def test_only_tensors_are_converted_and_bitwise(tmp_path: Path, save: Save, lightning: type) -> None:
    tensors = {
        "a": torch.randn(3, 4, generator=torch.Generator().manual_seed(0)),
        "turned": torch.arange(12.0).reshape(3, 4).t().half(),
        "bf16": torch.ones(2).bfloat16(),
        "steps": torch.tensor(7),
    }
    shell = lightning()
    shell.best = 0.5
    callbacks = {lightning: {"best": np.float64(1.5), "object": shell}}
    save(
        {"state_dict": tensors, "global_step": 470000, "callbacks": callbacks, "optimizer_states": [{}]},
        tmp_path / "x.ckpt",
    )
    pickled.convert(tmp_path / "x.ckpt", tmp_path / "x.safetensors")
    read = load_file(tmp_path / "x.safetensors")
    assert read.keys() == tensors.keys()
    assert all(torch.equal(read[k], v) and read[k].dtype == v.dtype for k, v in tensors.items())
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


@pytest.mark.usefixtures("pickles_read_here")
def test_tensors_without_state_dict_are_read(tmp_path: Path) -> None:
    torch.save({"conv.weight": torch.ones(2)}, tmp_path / "x.bin")
    pickled.convert(tmp_path / "x.bin", tmp_path / "x.safetensors")
    assert load_file(tmp_path / "x.safetensors").keys() == {"conv.weight"}


@pytest.mark.usefixtures("pickles_read_here")
def test_damaged_file_is_reported(tmp_path: Path) -> None:
    torch.save({"a": torch.ones(1000)}, tmp_path / "whole.pt")
    (tmp_path / "x.pt").write_bytes((tmp_path / "whole.pt").read_bytes()[:2000])
    with pytest.raises(WeightsError, match=r"x\.pt.*cannot be read as a torch checkpoint") as caught:
        pickled.convert(tmp_path / "x.pt", tmp_path / "x.safetensors")
    assert caught.value.code == "E1411"


@pytest.mark.parametrize(
    ("signal_number", "reason"), [(signal.SIGXCPU, "more than 900 seconds of CPU time"), (signal.SIGKILL, "was killed")]
)
def test_child_process_gets_limits_and_its_signal_is_explained(
    signal_number: int, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[list[str]] = []

    def killed(words: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        started.append(words)
        return subprocess.CompletedProcess(words, -signal_number, "", "")

    (tmp_path / "x.pt").write_bytes(bytes(1000))
    monkeypatch.setattr(subprocess, "run", killed)
    with pytest.raises(WeightsError, match=reason) as caught:
        pickled.convert(tmp_path / "x.pt", tmp_path / "x.safetensors")
    assert caught.value.code == "E1411"
    ((*_, memory, seconds),) = started
    assert (memory, seconds) == (str(3000 + (1 << 30)), "900")
    assert [path.name for path in tmp_path.iterdir()] == ["x.pt"]


@pytest.mark.usefixtures("pickles_read_here")
def test_file_is_converted_again_only_after_a_change(tmp_path: Path) -> None:
    source, store = tmp_path / "x.ckpt", tmp_path / "store"
    torch.save({"a": torch.ones(2)}, source)
    first = pickled.as_safetensors(source, store)
    made = first.stat().st_mtime_ns
    assert pickled.as_safetensors(source, store) == first
    assert first.stat().st_mtime_ns == made
    first.write_bytes(b"spoilt")
    assert pickled.as_safetensors(source, store) == first
    assert load_file(first)["a"].all()
    torch.save({"a": torch.zeros(2)}, source)
    second = pickled.as_safetensors(source, store)
    assert second != first
    assert not load_file(second)["a"].any()


def test_concurrent_requests_convert_a_file_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "x.ckpt").write_bytes(b"pickle")
    converted: list[Path] = []

    def convert(source: Path, target: Path) -> None:
        converted.append(source)
        target.write_bytes(b"tensors")

    monkeypatch.setattr(pickled, "convert", convert)
    with ThreadPoolExecutor(3) as pool:
        paths = set(pool.map(lambda _: pickled.as_safetensors(tmp_path / "x.ckpt", tmp_path / "store"), range(3)))
    assert len(paths) == len(converted) == 1


def test_pickled_files_are_recognised_by_their_bytes(tmp_path: Path) -> None:
    save_file({"a": torch.ones(1)}, tmp_path / "named.ckpt")
    assert not pickled.is_pickled(tmp_path / "named.ckpt")
    for save in (save_zip, save_legacy, save_raw):
        save({"a": torch.ones(1)}, tmp_path / "x.bin")
        assert pickled.is_pickled(tmp_path / "x.bin")
