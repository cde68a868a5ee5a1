from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from mezzotint import fault_injection
from mezzotint.errors import CheckpointError, Diverged, StorageError
from mezzotint.runtimes.base import Runtime
from mezzotint.training.checkpoints import state
from mezzotint.training.checkpoints.sharding import Share
from support.messages import refused


def tensors(step: int = 1) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(step)
    return {
        "w/denoiser/a": torch.randn(3, 4, generator=generator),
        "ema/denoiser/a": torch.randn(3, 4, generator=generator),
        "opt.mean/denoiser/a": torch.randn(3, 4, generator=generator),
        "opt.applied": torch.tensor(float(step)),
    }


def write(folder: Path, step: int) -> Path:
    return state.write(
        folder, step=step, tensors=tensors(step), values={"progress": {"step": step}}, recipe_digest="ab"
    )


def test_checkpoint_round_trip_is_bit_exact(tmp_path: Path) -> None:
    path = write(tmp_path, 7)
    back = state.read(path)
    assert path.name == "step-00000007"
    assert back.step == 7
    assert back.values == {"progress": {"step": 7}}
    assert all(
        torch.equal(back.tensors[name], t) and back.tensors[name].dtype == t.dtype for name, t in tensors(7).items()
    )
    assert {p.name for p in path.iterdir()} == {
        "weights.safetensors", "shadow.safetensors", "optimizer.safetensors", "state.json", "manifest.json",
    }  # fmt: skip


@pytest.mark.parametrize("file", ["weights.safetensors", "shadow.safetensors", "optimizer.safetensors", "state.json"])
def test_any_flipped_bit_is_named_and_the_checkpoint_skipped(tmp_path: Path, file: str) -> None:
    write(tmp_path, 1)
    newest = write(tmp_path, 2)
    content = bytearray((newest / file).read_bytes())
    for place in (0, len(content) // 2, len(content) - 1):
        broken = bytearray(content)
        broken[place] ^= 1
        (newest / file).write_bytes(broken)
        result = state.newest_valid(tmp_path)
        assert result.path == tmp_path / "step-00000001"
        assert result.passed_over[0][0] == newest
        assert file in result.passed_over[0][1]
        with pytest.raises(CheckpointError, match=file):
            state.read(newest)


def test_missing_truncated_and_foreign_files_are_named(tmp_path: Path) -> None:
    path = write(tmp_path, 1)
    whole = (path / "weights.safetensors").read_bytes()
    (path / "weights.safetensors").write_bytes(whole[:-10])
    assert "bytes" in (state.find_damage(path) or "")
    (path / "weights.safetensors").unlink()
    assert "missing" in (state.find_damage(path) or "")
    (path / "weights.safetensors").write_bytes(whole)
    assert state.find_damage(path) is None
    manifest = json.loads((path / "manifest.json").read_text())
    for change, words in (
        ({"step": 9}, "step 9"),
        ({"schema": 5}, "another version"),
        ({"files": manifest["files"] | {"../outside": {"bytes": 1, "sha256": ""}}}, "outside"),
    ):
        (path / "manifest.json").write_text(json.dumps(manifest | change))
        assert words in (state.find_damage(path) or "")
    (path / "manifest.json").unlink()
    assert "manifest.json is missing" in (state.find_damage(path) or "")


@pytest.mark.parametrize("how", ["short", "gone"])
def test_missing_or_truncated_file_falls_back_to_previous_checkpoint(tmp_path: Path, how: str) -> None:
    write(tmp_path, 1)
    newest = write(tmp_path, 2)
    for file in sorted(newest.iterdir()):
        whole = file.read_bytes()
        lengths = (0, len(whole) // 2, len(whole) - 2) if how == "short" else (None,)
        for length in lengths:
            file.unlink() if length is None else file.write_bytes(whole[:length])
            for hashes in (True, False):
                result = state.newest_valid(tmp_path, hashes=hashes)
                assert result.path == tmp_path / "step-00000001"
                assert result.passed_over[0][0] == newest
                assert file.name in result.passed_over[0][1]
            with pytest.raises(CheckpointError, match=file.name):
                state.read(newest)
        file.write_bytes(whole)
    assert state.newest_valid(tmp_path).path == newest


def edited(manifest: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Edited manifests, and a word of the message for each."""
    files, weights = manifest["files"], manifest["files"]["weights.safetensors"]
    yield "step 9", manifest | {"step": 9}
    yield (
        "weights.safetensors is damaged",
        manifest | {"files": files | {"weights.safetensors": weights | {"sha256": "0" * 64}}},
    )
    yield "more.safetensors is missing", manifest | {"files": files | {"more.safetensors": weights}}
    yield "state.json", manifest | {"files": {name: one for name, one in files.items() if name != "state.json"}}
    for name in ("../outside.safetensors", "../../outside.json", "/outside.json", "a/../../outside.json", "..", ""):
        yield "which is not a checkpoint file", manifest | {"files": files | {name: weights}}
    first = next(iter(manifest["tensors"]))
    (rows,) = manifest["tensors"][first]["rows"]
    elsewhere = manifest["tensors"][first] | {"rows": [rows | {"file": "../outside.safetensors"}]}
    yield "other tensors", manifest | {"tensors": manifest["tensors"] | {first: elsewhere}}


def test_edited_manifest_is_skipped_and_no_outside_file_is_read(tmp_path: Path) -> None:
    write(tmp_path / "run", 1)
    newest = write(tmp_path / "run", 2)
    for name in ("outside.json", "outside.safetensors", "run/outside.safetensors"):
        os.mkfifo(tmp_path / name)  # opening it would block forever
    manifest = json.loads((newest / "manifest.json").read_text())
    for words, changed in edited(manifest):
        (newest / "manifest.json").write_text(json.dumps(changed))
        result = state.newest_valid(tmp_path / "run")
        assert result.path == tmp_path / "run" / "step-00000001", changed
        assert words in result.passed_over[0][1]
    (newest / "manifest.json").write_text(json.dumps(manifest))
    assert state.newest_valid(tmp_path / "run").path == newest


def test_pruning_keeps_newest_complete_checkpoints_and_user_files(tmp_path: Path) -> None:
    for step in (1, 2, 3, 4):
        write(tmp_path, step)
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "step-backup").mkdir()
    (tmp_path / "step-00000004" / "weights.safetensors").write_bytes(b"broken")
    gone = state.prune(tmp_path, keep=2)
    assert [p.name for p in gone] == ["step-00000001"]
    assert state.newest_valid(tmp_path).path == tmp_path / "step-00000003"
    assert (tmp_path / "notes.txt").exists()
    assert (tmp_path / "step-backup").exists()


def test_checkpoints_are_ordered_by_step_not_time(tmp_path: Path) -> None:
    write(tmp_path, 12)
    path = write(tmp_path, 3)
    os.utime(path, (2**31, 2**31))
    assert state.newest_valid(tmp_path).path == tmp_path / "step-00000012"


def test_nonfinite_weights_are_never_saved(tmp_path: Path) -> None:
    broken = tensors() | {"w/denoiser/b": torch.tensor([1.0, float("nan")])}
    with pytest.raises(Diverged, match="denoiser/b"):
        state.write(tmp_path, step=1, tensors=broken, values={}, recipe_digest="")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("point", ["checkpoint.begin", "checkpoint.file", "checkpoint.manifest"])
def test_full_disk_keeps_older_checkpoint_and_no_partial_files(tmp_path: Path, point: str) -> None:
    write(tmp_path, 1)
    fault_injection.arm(f"{point}@1:enospc")
    try:
        with pytest.raises((StorageError, OSError)):
            write(tmp_path, 2)
    finally:
        fault_injection.arm("")
    assert [p.name for p in tmp_path.iterdir()] == ["step-00000001"]
    assert state.find_damage(tmp_path / "step-00000001") is None


def test_checkpoint_of_another_model_is_refused_with_counts(tmp_path: Path) -> None:
    back = state.read(write(tmp_path, 1))
    with pytest.raises(CheckpointError, match=r"1 missing \(w/denoiser/z\).*1 with another shape"):
        state.fits(back, {"w/denoiser/z": torch.zeros(1), "w/denoiser/a": torch.zeros(2)})


class OneOf(Runtime):
    """One of several processes that all hold everything; `said` has the messages of all."""

    def __init__(self, rank: int, world_size: int, said: dict[str, Any]) -> None:
        self.rank, self.world_size, self.said = rank, world_size, said

    def share(self, text: str) -> str:
        return str(self.said.setdefault("first", []).append(text) or text) if not self.rank else self.said["first"][-1]

    def gather(self, text: str) -> tuple[str, ...]:
        return tuple(self.said["outcomes"])


def written_by(
    folder: Path, tensors: dict[str, torch.Tensor], count: int, lost: str = ""
) -> list[state.Transaction]:  # fmt: skip
    """Each process has written its shard; that of one is on the disk of another machine."""
    said: dict[str, Any] = {}
    all_ = [
        state.Transaction(
            folder, step=3, tensors=tensors, values={"a": 1}, recipe_digest="r", runtime=OneOf(rank, count, said)
        )
        for rank in range(count)
    ]
    said["outcomes"] = [one.write(lambda name: state.pieces_of(tensors[name])) for one in all_]
    for path in folder.glob(f".*/{lost}") if lost else ():
        path.unlink()
    return all_


def test_each_process_writes_its_shard_and_any_reads_all(tmp_path: Path) -> None:
    tensors = {f"{kind}/denoiser/{n}": torch.randn(n + 1, 4) for kind in ("w", "ema", "opt.mean") for n in range(6)}
    tensors |= {"opt.count/denoiser/0": torch.tensor(7.0), "scaler/none": torch.zeros(0)}
    for one in written_by(tmp_path, tensors, 3):
        path = one.complete("")
    assert state.find_damage(path) is None
    sizes = {p.name: p.stat().st_size for p in path.glob("*.safetensors")}
    assert {name.split("-")[1] for name in sizes} == {"00001", "00002", "00003"}
    read = state.read(path)
    assert read.values == {"a": 1}
    assert read.tensors.keys() == tensors.keys()
    assert all(torch.equal(read.tensors[name], tensor) for name, tensor in tensors.items())
    rows = state.tensors_of(path, {"denoiser/5": Share((6, 4), 2, 5)})
    assert torch.equal(rows["w/denoiser/5"], tensors["w/denoiser/5"][2:5]), "also by a process that holds a part"
    (path / next(iter(sizes))).write_bytes(b"")
    assert state.find_damage(path) is not None


def test_shard_invisible_to_first_process_invalidates_the_checkpoint(tmp_path: Path) -> None:
    tensors = {f"w/denoiser/{n}": torch.randn(5) for n in range(4)}
    for one in written_by(tmp_path, tensors, 2, lost="weights-00002-of-00002.safetensors"):
        with refused("E1846", r"weights-00002-of-00002.*run\.save\.sharded=false"):
            one.complete("")
    assert list(tmp_path.iterdir()) == []
