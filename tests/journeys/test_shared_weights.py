"""Processes that share the weights (`run.runtime=fsdp`) end as one does, save together, and go on alone."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from mezzotint.errors import RecipeError
from mezzotint.run_folder import CHECKPOINT_SCHEMA
from mezzotint.runtimes import fsdp
from mezzotint.settings.sections.run import ShardSettings
from mezzotint.training.checkpoints import state
from mezzotint.weights.files import tensor_files
from support.run_folders import assert_alike, logged, tensors_of

# five samples in a batch: some steps leave a process without a sample of its own
SETTINGS = {
    "run__steps": 4, "run__save__every": "2 steps", "optim__accumulation": 2, "data__batch_size": 5,
    "run__validation__every": "2 steps", "run__validation__timesteps": 2, "data__holdout__fraction": 0.2,
    "run__preview__every": "4 steps", "sample__prompts": "[a picture]", "sample__steps": 2, "sample__size": "[48, 48]",
}  # fmt: skip
pytestmark = pytest.mark.distributed


def start(world: Any, name: str, processes: int, **settings: Any) -> Path:
    runs = world.fork_group(name, processes, **settings) if processes > 1 else [world.fork(name, **settings)]
    for child in runs:
        assert world.wait(child) == 0, world.out(name)
    return Path(world.root / name)


@pytest.fixture(scope="module")
def alone(shared_world: Any) -> Path:
    return start(shared_world, "one", 1, **SETTINGS)


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [
        {},
        pytest.param({"run__shard__parameters": False}, marks=pytest.mark.slow),
        pytest.param({"run__shard__group": 1}, marks=pytest.mark.slow),
    ],
)
def test_two_that_share_end_as_one_does(shared_world: Any, alone: Path, changes: dict[str, Any]) -> None:
    name = "shared" + "".join(f"-{key[12:]}" for key in changes)
    folder = start(shared_world, name, 2, run__runtime="fsdp", **SETTINGS, **changes)
    assert_alike(tensors_of(folder), tensors_of(alone))
    assert logged(folder, "loss") == pytest.approx(logged(alone, "loss"), rel=1e-4)
    assert logged(folder, "val/loss") == pytest.approx(logged(alone, "val/loss"), rel=1e-4)
    for suffix in ("", "-ema"):
        model = Path("exports") / f"step-00000004{suffix}" / "unet" / "diffusion_pytorch_model.safetensors"
        assert_alike(tensor_files.read(folder / model), tensor_files.read(alone / model))
    assert sorted(p.name for p in (folder / "samples" / "step-00000004").iterdir()) == ["00-raw.png", "00-shadow.png"]


@pytest.mark.slow
def test_saved_by_two_it_goes_on_in_one_and_back(shared_world: Any, alone: Path) -> None:
    two = start(shared_world, "there", 2, run__runtime="fsdp", **SETTINGS | {"run__steps": 2})
    checkpoint = state.newest(two / "checkpoints").path
    assert checkpoint is not None
    names = {path.name for path in checkpoint.iterdir()}
    assert {"weights-00001-of-00002.safetensors", "weights-00002-of-00002.safetensors"} <= names
    assert json.loads((checkpoint / "manifest.json").read_text())["schema"] == CHECKPOINT_SCHEMA
    start(shared_world, "there", 1, **SETTINGS | {"run__steps": 3})
    start(shared_world, "there", 2, run__runtime="fsdp", **SETTINGS)
    assert_alike(tensors_of(two), tensors_of(alone))
    assert logged(two, "loss") == pytest.approx(logged(alone, "loss"), rel=1e-4)


def test_a_group_has_to_divide_the_processes() -> None:
    assert fsdp.group_size(ShardSettings(), 6) == 6
    assert fsdp.group_size(ShardSettings(group=3), 6) == 3
    with pytest.raises(RecipeError, match="write one of 1, 2, 3, 6"):
        fsdp.group_size(ShardSettings(group=4), 6)


def test_an_optimizer_that_needs_whole_tensors_is_refused(shared_world: Any) -> None:
    status = shared_world.wait(
        shared_world.fork("refused", run__runtime="fsdp", optim__optimizer={"kind": "adafactor"}, run__steps=1)
    )
    assert status == 2
    sentence = "which needs whole tensors; set one of "
    assert sentence in shared_world.out("refused")


@pytest.fixture(scope="module")
def of_two(shared_world: Any) -> Path:
    """A run of two that share, that of the first test where it has run."""
    folder: Path = shared_world.root / "shared"
    if state.newest(folder / "checkpoints").path is None:
        start(shared_world, "shared", 2, run__runtime="fsdp", **SETTINGS)
    return folder


@pytest.mark.slow
@pytest.mark.faults
def test_killed_while_saving_it_goes_on_to_the_same_bits(shared_world: Any, of_two: Path) -> None:
    settings = SETTINGS | {"run__runtime": "fsdp", "run__preview__every": None, "run__validation__every": None}
    broken = shared_world.fork_group("broken", 2, faults={1: "checkpoint.file@4:kill"}, **settings)
    assert 137 in [shared_world.wait(child) for child in broken]
    mine, other = tensors_of(start(shared_world, "broken", 2, **settings)), tensors_of(of_two)
    assert all(torch.equal(mine[name], other[name]) for name in other)


@pytest.mark.slow
@pytest.mark.parametrize("damage", ["gap", "file", "table"])
def test_a_checkpoint_of_rows_that_is_not_whole_is_noticed(of_two: Path, tmp_path: Path, damage: str) -> None:
    source = state.newest(of_two / "checkpoints").path
    copy = tmp_path / source.name
    shutil.copytree(source, copy)
    assert state.damage(copy) is None
    manifest = json.loads((copy / "manifest.json").read_text())
    name = next(n for n, entry in manifest["tensors"].items() if len(entry["rows"]) == 2)
    if damage == "gap":
        manifest["tensors"][name]["rows"].pop()
    elif damage == "table":
        manifest["tensors"][name]["rows"][1]["start"] += 1
    else:
        (copy / "weights-00002-of-00002.safetensors").unlink()
    (copy / "manifest.json").write_text(json.dumps(manifest))
    assert state.damage(copy) is not None
