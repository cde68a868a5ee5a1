"""Pickled model files: their tensors come out to the bit, their programs never run.

Most files are read by the same program in this process (`pickles_read_here`); one of each kind, and everything that the
other process is there for, by a process of its own.
"""

from __future__ import annotations

import sys
import types
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from mezzotint.errors import WeightsError
from mezzotint.weights.files import pickled
from support.pickles import Canary, Save, save_legacy, save_raw, save_zip


@pytest.fixture
def lightning(monkeypatch: pytest.MonkeyPatch) -> type:
    """A class under the name that Lightning's checkpoints carry; only here does it exist."""
    name = "pytorch_lightning.callbacks.model_checkpoint"
    for package in ("pytorch_lightning", "pytorch_lightning.callbacks", name):
        monkeypatch.setitem(sys.modules, package, types.ModuleType(package))
    kind = type("ModelCheckpoint", (), {"__module__": name})
    monkeypatch.setattr(sys.modules[name], "ModelCheckpoint", kind, raising=False)
    return kind


@pytest.fixture(params=["here", "there"])
def _here_and_there(request: pytest.FixtureRequest) -> None:
    """Once in this process, once in one of its own."""
    if request.param == "here":
        request.getfixturevalue("pickles_read_here")


@pytest.mark.usefixtures("_here_and_there")
def test_both_ways_read_and_refuse_alike(tmp_path: Path) -> None:
    torch.save({"state_dict": {"a": torch.ones(2)}}, tmp_path / "x.ckpt")
    pickled.convert(tmp_path / "x.ckpt", tmp_path / "x.safetensors")
    assert torch.equal(load_file(tmp_path / "x.safetensors")["a"], torch.ones(2))
    save_zip({"state_dict": {"a": 1, "b": Canary(tmp_path / "nest")}}, tmp_path / "y.ckpt")
    with pytest.raises(WeightsError, match=r"y\.ckpt: refused: it imports posix\.system, which") as caught:
        pickled.convert(tmp_path / "y.ckpt", tmp_path / "y.safetensors")
    assert caught.value.code == "E1411"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["x.ckpt", "x.safetensors", "y.ckpt"]


@pytest.mark.usefixtures("pickles_read_here")
@pytest.mark.parametrize("save", [save_zip, save_legacy])
def test_tensors_come_out_to_the_bit_and_nothing_else_does(tmp_path: Path, save: Save, lightning: type) -> None:
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
    found = load_file(tmp_path / "x.safetensors")
    assert found.keys() == tensors.keys()
    assert all(torch.equal(found[k], v) and found[k].dtype == v.dtype for k, v in tensors.items())
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


@pytest.mark.usefixtures("pickles_read_here")
def test_tensors_without_a_state_dict_around_them_are_read(tmp_path: Path) -> None:
    torch.save({"conv.weight": torch.ones(2)}, tmp_path / "x.bin")
    pickled.convert(tmp_path / "x.bin", tmp_path / "x.safetensors")
    assert load_file(tmp_path / "x.safetensors").keys() == {"conv.weight"}


@pytest.mark.usefixtures("pickles_read_here")
def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    torch.save({"a": torch.ones(1000)}, tmp_path / "whole.pt")
    (tmp_path / "x.pt").write_bytes((tmp_path / "whole.pt").read_bytes()[:2000])
    with pytest.raises(WeightsError, match=r"x\.pt.*cannot be read as a torch checkpoint") as caught:
        pickled.convert(tmp_path / "x.pt", tmp_path / "x.safetensors")
    assert caught.value.code == "E1411"


@pytest.mark.slow
def test_memory_and_time_have_bounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.save({"a": torch.ones(40_000_000, dtype=torch.uint8)}, tmp_path / "x.pt")
    for name, bound, said in (
        ("_memory_for", lambda size: 10_000_000, "memory"), ("_SECONDS", 0, r"seconds of CPU time|killed"),
    ):  # fmt: skip
        with monkeypatch.context() as patch:
            patch.setattr(pickled, name, bound)
            with pytest.raises(WeightsError, match=said):
                pickled.convert(tmp_path / "x.pt", tmp_path / "x.safetensors")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["x.pt"]


@pytest.mark.usefixtures("pickles_read_here")
def test_a_file_is_converted_once_and_again_when_it_or_its_copy_changes(tmp_path: Path) -> None:
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


@pytest.mark.slow
def test_of_several_that_ask_one_converts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.save({"a": torch.ones(2)}, tmp_path / "x.ckpt")
    made: list[Path] = []
    convert = pickled.convert
    monkeypatch.setattr(pickled, "convert", lambda *given: (made.append(given[0]), convert(*given)))
    with ThreadPoolExecutor(3) as pool:
        found = list(pool.map(lambda _: pickled.as_safetensors(tmp_path / "x.ckpt", tmp_path / "store"), range(3)))
    assert len(set(found)) == len(made) == 1


def test_what_is_pickled_is_told_by_its_bytes(tmp_path: Path) -> None:
    save_file({"a": torch.ones(1)}, tmp_path / "named.ckpt")
    assert not pickled.is_pickled(tmp_path / "named.ckpt")
    for save in (save_zip, save_legacy, save_raw):
        save({"a": torch.ones(1)}, tmp_path / "x.bin")
        assert pickled.is_pickled(tmp_path / "x.bin")
