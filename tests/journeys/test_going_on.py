"""A run that goes on is the run that was begun: its lock, its line, its minutes, its patience, its frozen weights."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from mezzotint import durable, outside
from mezzotint.cli import main
from mezzotint.data.catalogue import catalogue as catalogues
from mezzotint.diffusion.objective import Objective
from mezzotint.errors import CheckpointError, StorageError
from mezzotint.run_folder import RunFolder
from mezzotint.training.checkpoints import state
from mezzotint.weights.files import tensor_files


def steps_logged(folder: Path) -> list[int]:
    return [line["step"] for line in outside.read_lines(folder / "metrics.jsonl") if "loss" in line]


def test_a_refused_second_start_leaves_the_first_ones_lock_and_folders(world: Any, capsys: Any) -> None:
    folder = RunFolder(world.root / "run").open()
    with folder.lock():
        for _ in range(2):
            assert world.train("run") == 2
            assert "is writing here" in capsys.readouterr().err
        assert folder.checkpoints.is_dir(), "what the first one has made is not swept from under it"
        with pytest.raises(CheckpointError, match="is writing here"):
            folder.lock()


def test_a_run_that_insisted_on_being_new_goes_on_by_the_line_it_prints(world: Any, capsys: Any) -> None:
    assert world.train("run", run__steps=3, run__resume="never") == 0
    capsys.readouterr()
    assert main(["train", str(world.root / "run" / "recipe.yaml"), "run.steps=5"]) == 0
    assert "resuming from step-00000003" in capsys.readouterr().out


@pytest.mark.slow
def test_a_run_from_another_runs_checkpoint_goes_on_from_its_own(world: Any, capsys: Any) -> None:
    assert world.train("first", run__steps=3) == 0
    there = world.root / "first" / "checkpoints" / "step-00000003"
    child = world.fork("run", fault="step.begin@2:kill", run__steps=9, run__save__every=6, run__resume=str(there))
    assert world.wait(child) == 137
    capsys.readouterr()
    recipe = world.root / "run" / "recipe.yaml"
    assert main(["train", str(recipe)]) == 0
    assert "resuming from step-00000003" in capsys.readouterr().out, "killed before its first save, it has a start"
    assert main(["train", str(recipe), "run.steps=10"]) == 0
    assert "resuming from step-00000009" in capsys.readouterr().out, "and does not fall back to it"


@pytest.mark.slow
@pytest.mark.distributed
def test_two_processes_save_by_the_clock_at_the_same_step(shared_world: Any) -> None:
    world = shared_world
    timed = {"run__save__every": "0.0001 minutes", "run__tensorboard": True}
    timed |= {"run__steps": 4, "run__timeout_seconds": 20}
    for child in world.fork_group("minutes", 2, **timed):
        assert world.wait(child) == 0, world.out("minutes")
    assert steps_logged(world.root / "minutes") == [1, 2, 3, 4]


@pytest.mark.slow
@pytest.mark.distributed
@pytest.mark.faults
def test_a_process_waits_longer_for_work_that_the_first_does_alone(shared_world: Any) -> None:
    """Indexing a large data set takes longer than `run.timeout_seconds`, which is about peers that hang in training."""
    world = shared_world
    settings = {"run__steps": 2, "run__timeout_seconds": 3, "data__cache__path": world.root / "patience"}
    for child in world.fork_group("patience", 2, faults={0: "data.decode@1:sleep=6"}, **settings):
        assert world.wait(child) == 0, world.out("patience")


def test_another_base_under_frozen_weights_is_noticed(world: Any, capsys: Any) -> None:
    """Some of the denoiser is frozen: it is not in the checkpoint, and comes from the model's folder again. The
    average of the second step is other than the weights: the first one copies them."""
    assert world.train("base", run__steps=2) == 0
    base = world.root / "base" / "exports" / "step-00000002"
    model = shutil.copytree(base, world.root / "copied")
    settings = {"model__path": model, "model__weights": "files", "model__freeze": ["denoiser/down_blocks.*"]}
    assert world.train("run", **settings, run__steps=3) == 0
    shutil.copyfile(
        world.root / "base" / "exports" / "step-00000002-ema" / "unet" / "diffusion_pytorch_model.safetensors",
        model / "unet" / "diffusion_pytorch_model.safetensors",
    )
    capsys.readouterr()
    assert world.train("run", **settings, run__steps=5) == 2
    assert "E1514" in capsys.readouterr().err


@pytest.mark.slow
def test_float32_masters_begin_as_the_files_weights_and_frozen_ones_are_exported_as_they_were(world: Any) -> None:
    assert world.train("base", run__steps=1) == 0
    base = world.root / "base" / "exports" / "step-00000001"
    name = Path("unet") / "diffusion_pytorch_model.safetensors"
    settings = {
        "model__path": base, "model__weights": "files", "model__freeze": ["denoiser/down_blocks.*"],
        "run__precision": "bf16", "run__weight_dtype": "same", "optim__lr": 1e-9, "run__steps": 1,
        "optim__ema__rule": "none",
    }  # fmt: skip
    assert world.train("run", **settings) == 0
    before, after = (
        tensor_files.read(base / name),
        tensor_files.read(world.root / "run" / "exports" / "step-00000001" / name),
    )
    assert max(float((before[k] - after[k]).abs().max()) for k in before) < 1e-6


def test_a_full_disk_at_an_export_between_steps_ends_nothing(world: Any, capsys: Any) -> None:
    child = world.fork("run", fault="export.begin@1:enospc", run__export__every=3, run__steps=5)
    assert world.wait(child) == 0, world.out("run")
    assert steps_logged(world.root / "run") == [1, 2, 3, 4, 5]
    assert "the disk is full" in world.out("run")


def test_a_manifest_with_a_flipped_bit_is_passed_over(tmp_path: Path) -> None:
    for step in (1, 2):
        state.write(
            tmp_path, step=step, tensors={"w/denoiser/a": torch.ones(3, 4), "opt.applied": torch.tensor(1.0)},
            values={"progress": {"step": step}}, recipe_digest="ab",
        )  # fmt: skip
    manifest = tmp_path / "step-00000002" / "manifest.json"
    whole = manifest.read_bytes()
    stepped_over = 0
    for place in range(len(whole)):
        broken = bytearray(whole)
        broken[place] ^= 1
        manifest.write_bytes(broken)
        newest = state.newest(tmp_path)
        assert newest.path is not None
        state.read(newest.path)  # what is chosen can be read
        stepped_over += newest.path.name == "step-00000001"
    assert stepped_over > len(whole) // 2
    assert json.loads(whole)["step"] == 2


@pytest.mark.parametrize(
    ("file", "change"),
    [
        ("scheduler/scheduler_config.json", {"prediction_type": "v_prediction"}),
        pytest.param("scheduler/scheduler_config.json", {"beta_end": 0.02}, marks=pytest.mark.slow),
        ("tokenizer/tokenizer_config.json", {"do_lower_case": False}),
    ],
)
def test_another_schedule_or_tokenizer_in_the_models_folder_is_noticed(
    world: Any, capsys: Any, file: str, change: dict[str, Any]
) -> None:
    assert world.train("run", run__steps=2) == 0
    path = world.model / file
    path.write_text(json.dumps((json.loads(path.read_text()) if path.is_file() else {}) | change))
    capsys.readouterr()
    assert world.train("run", run__steps=4) == 2
    assert "E1514" in capsys.readouterr().err


def test_a_part_of_a_scheduler_file_that_no_training_step_reads_may_change(world: Any) -> None:
    assert world.train("run", run__steps=2) == 0
    path = world.model / "scheduler" / "scheduler_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"steps_offset": 7, "clip_sample": True}))
    assert world.train("run", run__steps=4) == 0


def test_a_bad_step_that_cannot_be_written_down_ends_nothing(
    world: Any, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    append, loss, calls = durable.append_line, Objective.loss, []

    def full(path: Path, value: Any) -> None:
        if path.name == "bad_steps.jsonl":
            raise StorageError(f"{path}: the disk is full", code="E1701")
        append(path, value)

    def poisoned(self: Objective, predicted: torch.Tensor, *others: Any) -> Any:
        calls.append(1)
        return loss(self, predicted * float("nan") if len(calls) == 2 else predicted, *others)

    monkeypatch.setattr(durable, "append_line", full)
    monkeypatch.setattr(Objective, "loss", poisoned)
    assert world.train("run", run__steps=5) == 0
    assert "step 2 was not finite and was not applied; its samples could not be recorded" in capsys.readouterr().out
    assert steps_logged(world.root / "run") == [1, 2, 3, 4, 5]


@pytest.mark.slow
def test_an_export_that_is_made_again_replaces_the_old_one_when_it_is_whole(world: Any) -> None:
    assert world.train("run", run__steps=2) == 0
    there = world.root / "run" / "exports" / "step-00000002"
    (there / "mark").write_text("")
    child = world.fork("run", fault="export.begin@1:enospc", run__steps=2)
    assert world.wait(child) == 4, world.out("run")
    assert (there / "mark").is_file(), "a full disk has not cost the export that was there"
    assert world.train("run", run__steps=2) == 0
    assert not (there / "mark").exists()
    assert {p.name for p in there.parent.iterdir()} == {"step-00000002", "step-00000002-ema"}


@pytest.mark.slow
@pytest.mark.distributed
@pytest.mark.faults
def test_every_process_names_its_samples_of_a_bad_step(shared_world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    world, loss, calls = shared_world, Objective.loss, []

    def poisoned(self: Objective, predicted: torch.Tensor, *others: Any) -> Any:
        calls.append(1)
        return loss(self, predicted * float("nan") if len(calls) == 2 else predicted, *others)

    monkeypatch.setattr(Objective, "loss", poisoned)
    for child in world.fork_group("bad", 2, run__steps=4):
        assert world.wait(child) == 0, world.out("bad")
    lines = outside.read_lines(world.root / "bad" / "bad_steps.jsonl")
    assert sorted((line["step"], line["rank"]) for line in lines) == [(2, 0), (2, 1)]
    assert all(line["keys"] for line in lines)


@pytest.mark.distributed
def test_processes_that_see_different_data_are_told_so(shared_world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    build = catalogues.build

    def other_in_the_second(*arguments: Any, **named: Any) -> Any:
        catalogue = build(*arguments, **named)
        return replace(catalogue, fingerprint="other") if os.environ.get("RANK") == "1" else catalogue

    monkeypatch.setattr(catalogues, "build", other_in_the_second)
    monkeypatch.setattr(catalogues, "at_address", lambda address: None)  # as on a machine with a disk of its own
    children = shared_world.fork_group("differ", 2, run__steps=2)
    assert shared_world.wait(children[1]) == 2, shared_world.out("differ")
    assert shared_world.wait(children[0]) == 6
    assert "E1209" in shared_world.out("differ")
