"""Runs with sharded weights (`run.runtime=fsdp`): equal to one process, saved together, resumed by one process."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from mezzotint.run_folder import CHECKPOINT_SCHEMA
from mezzotint.training.checkpoints import state
from mezzotint.weights.files import tensor_files
from support.run_folders import assert_alike, logged, tensors_of

# five samples in a batch: in some steps a process has no sample
SETTINGS = {
    "run__steps": 4, "run__save__every": "2 steps", "optim__accumulation": 2, "data__batch_size": 5,
    "run__validation__every": "2 steps", "run__validation__timesteps": 1, "data__holdout__fraction": 0.2,
    "run__preview__every": "4 steps", "sample__prompts": "[an image]", "sample__steps": 1, "sample__size": "[48, 48]",
}  # fmt: skip
pytestmark = pytest.mark.distributed


def start(world: Any, name: str, processes: int, **settings: Any) -> Path:
    runs = world.fork_group(name, processes, **settings) if processes > 1 else [world.fork(name, **settings)]
    for child in runs:
        assert world.wait(child) == 0, world.out(name)
    return Path(world.root / name)


@pytest.fixture(scope="module")
def one_process(shared_world: Any) -> Path:
    return start(shared_world, "one", 1, **SETTINGS)


@pytest.mark.slow
@pytest.mark.parametrize("changes", [{}, {"run__shard__parameters": False}, {"run__shard__group": 1}])
def test_two_processes_equal_one(shared_world: Any, one_process: Path, changes: dict[str, Any]) -> None:
    name = "shared" + "".join(f"-{key[12:]}" for key in changes)
    folder = start(shared_world, name, 2, run__runtime="fsdp", **SETTINGS, **changes)
    assert_alike(tensors_of(folder), tensors_of(one_process))
    assert logged(folder, "loss") == pytest.approx(logged(one_process, "loss"), rel=1e-4)
    assert logged(folder, "val/loss") == pytest.approx(logged(one_process, "val/loss"), rel=1e-4)
    for suffix in ("", "-ema"):
        model = Path("exports") / f"step-00000004{suffix}" / "unet" / "diffusion_pytorch_model.safetensors"
        assert_alike(tensor_files.read(folder / model), tensor_files.read(one_process / model))
    assert sorted(p.name for p in (folder / "samples" / "step-00000004").iterdir()) == ["00-raw.png", "00-shadow.png"]


@pytest.mark.slow
def test_sharded_average_of_weights_equals_that_of_one_process(shared_world: Any) -> None:
    settings = SETTINGS | {"optim__optimizer": {"kind": "schedule-free-adamw", "warmup_steps": 2}}
    one = start(shared_world, "free one", 1, **settings)
    two = start(shared_world, "free two", 2, run__runtime="fsdp", **settings)
    assert_alike(tensors_of(two), tensors_of(one))
    assert logged(two, "val/loss") == pytest.approx(logged(one, "val/loss"), rel=1e-4)
    for suffix in ("", "-ema"):
        model = Path("exports") / f"step-00000004{suffix}" / "unet" / "diffusion_pytorch_model.safetensors"
        assert_alike(tensor_files.read(two / model), tensor_files.read(one / model))


FROZEN_IN_PART = {
    "freeze": {"model__freeze": "['denoiser/down_blocks.*', 'denoiser/mid_block.*']"},
    "last_layers": {
        "model__train": "[denoiser, text_encoder]", "model__last_layers": 1,
        "model__freeze": "[text_encoder/*.k_proj.bias]",  # has no gradient but rounding, which Adam enlarges
    },
    "rate 0": {"optim__part_lr": '{"denoiser/*": 0, "denoiser/up_blocks.*": 1e-4}'},
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("kind", FROZEN_IN_PART)
def test_a_part_of_which_some_is_frozen_is_exported_as_by_one_process(shared_world: Any, kind: str) -> None:
    settings = SETTINGS | FROZEN_IN_PART[kind]
    one = start(shared_world, f"{kind} one", 1, **settings)
    two = start(shared_world, f"{kind} two", 2, run__runtime="fsdp", **settings)
    assert_alike(tensors_of(two), tensors_of(one))
    trained = tuple(name.split("/", 2)[2] for name in tensors_of(two) if name.startswith("w/"))
    for suffix in ("", "-ema"):
        files = sorted((one / "exports" / f"step-00000004{suffix}").rglob("*.safetensors"))
        assert len(files) == 3
        for file in files:
            ours, theirs = tensor_files.read(two / file.relative_to(one)), tensor_files.read(file)
            assert_alike(ours, theirs)
            assert all(torch.equal(ours[name], theirs[name]) for name in theirs if not name.endswith(trained))
    assert sorted(p.name for p in (two / "samples" / "step-00000004").iterdir()) == ["00-raw.png", "00-shadow.png"]


@pytest.mark.slow
def test_sharded_checkpoint_resumes_in_one_process_and_back_in_two(shared_world: Any, one_process: Path) -> None:
    two = start(shared_world, "there", 2, run__runtime="fsdp", **SETTINGS | {"run__steps": 2})
    checkpoint = state.newest_valid(two / "checkpoints").path
    assert checkpoint is not None
    names = {path.name for path in checkpoint.iterdir()}
    assert {"weights-00001-of-00002.safetensors", "weights-00002-of-00002.safetensors"} <= names
    assert json.loads((checkpoint / "manifest.json").read_text())["schema"] == CHECKPOINT_SCHEMA
    start(shared_world, "there", 1, **SETTINGS | {"run__steps": 3})
    start(shared_world, "there", 2, run__runtime="fsdp", **SETTINGS)
    assert_alike(tensors_of(two), tensors_of(one_process))
    assert logged(two, "loss") == pytest.approx(logged(one_process, "loss"), rel=1e-4)


def test_optimizer_that_needs_whole_tensors_is_refused(shared_world: Any) -> None:
    status = shared_world.wait(
        shared_world.fork("refused", run__runtime="fsdp", optim__optimizer={"kind": "adafactor"}, run__steps=1)
    )
    assert status == 2
    assert "which needs whole tensors; set one of " in shared_world.out("refused")


@pytest.fixture(scope="module")
def two_processes(shared_world: Any) -> Path:
    """A run of two processes; the one of the first test where it has run."""
    folder: Path = shared_world.root / "shared"
    if state.newest_valid(folder / "checkpoints").path is None:
        start(shared_world, "shared", 2, run__runtime="fsdp", **SETTINGS)
    return folder


@pytest.mark.slow
@pytest.mark.faults
def test_kill_during_a_sharded_save_resumes_bit_exactly(shared_world: Any, two_processes: Path) -> None:
    settings = SETTINGS | {"run__runtime": "fsdp", "run__preview__every": None, "run__validation__every": None}
    broken = shared_world.fork_group("broken", 2, faults={1: "checkpoint.file@4:kill"}, **settings)
    assert 137 in [shared_world.wait(child) for child in broken]
    mine, other = tensors_of(start(shared_world, "broken", 2, **settings)), tensors_of(two_processes)
    assert all(torch.equal(mine[name], other[name]) for name in other)


@pytest.mark.slow
@pytest.mark.parametrize("damage", ["gap", "file", "table"])
def test_incomplete_sharded_checkpoint_is_noticed(two_processes: Path, tmp_path: Path, damage: str) -> None:
    source = state.newest_valid(two_processes / "checkpoints").path
    copy = tmp_path / source.name
    shutil.copytree(source, copy)
    assert state.find_damage(copy) is None
    manifest = json.loads((copy / "manifest.json").read_text())
    name = next(n for n, entry in manifest["tensors"].items() if len(entry["rows"]) == 2)
    if damage == "gap":
        manifest["tensors"][name]["rows"].pop()
    elif damage == "table":
        manifest["tensors"][name]["rows"][1]["start"] += 1
    else:
        (copy / "weights-00002-of-00002.safetensors").unlink()
    (copy / "manifest.json").write_text(json.dumps(manifest))
    assert state.find_damage(copy) is not None
