"""Resumed runs: lock, printed command, intervals in minutes, timeouts, frozen weights."""

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
from mezzotint.data.catalogue import sharing
from mezzotint.diffusion.objective import Objective
from mezzotint.errors import CheckpointError, StorageError
from mezzotint.run_folder import RunFolder
from mezzotint.training.checkpoints import state
from mezzotint.weights.files import tensor_files


def steps_logged(folder: Path) -> list[int]:
    return [line["step"] for line in outside.read_lines(folder / "metrics.jsonl") if "loss" in line]


def test_refused_second_start_keeps_the_lock_and_folders_of_the_first(world: Any, capsys: Any) -> None:
    folder = RunFolder(world.root / "run").open()
    with folder.lock():
        for _ in range(2):
            assert world.train("run") == 2
            assert "is writing here" in capsys.readouterr().err
        assert folder.checkpoints.is_dir(), "folders of the first start are kept"
        with pytest.raises(CheckpointError, match="is writing here"):
            folder.lock()


def test_run_with_resume_never_resumes_from_its_own_recipe(world: Any, capsys: Any) -> None:
    assert world.train("run", run__steps=3, run__resume="never") == 0
    capsys.readouterr()
    assert main(["train", str(world.root / "run" / "recipe.yaml"), "run.steps=5"]) == 0
    assert "resuming from step-00000003" in capsys.readouterr().out


def test_random_strengths_of_noise_resume_bit_exactly(world: Any) -> None:
    settings = {"objective__noise_offset": 0.2, "objective__noise_offset_random_strength": True}
    settings |= {"objective__input_perturbation": 0.1, "objective__input_perturbation_random_strength": True}
    assert world.train("whole", run__steps=4, **settings) == 0
    for steps in (2, 4):
        assert world.train("parts", run__steps=steps, **settings) == 0
    assert world.end("parts").tensors == world.end("whole").tensors
    assert world.train("plain", run__steps=4) == 0
    assert world.end("plain").tensors != world.end("whole").tensors


@pytest.mark.parametrize("trains", ["weights", "adapter"])
def test_rates_of_patterns_resume_bit_exactly(world: Any, trains: str) -> None:
    rates = '{"denoiser/mid_block.*": 2e-3, "denoiser/down_blocks.0.*": 0, "denoiser/*attn2*": 1e-4}'
    settings = {"optim__lr": 1e-3, "optim__part_lr": rates}
    settings |= {"model__adapter__kind": "lora", "model__adapter__rank": 2} if trains == "adapter" else {}
    assert world.train("whole", run__steps=4, **settings) == 0
    for steps in (2, 4):
        assert world.train("parts", run__steps=steps, **settings) == 0
    tensors = world.end("whole").tensors
    assert world.end("parts").tensors == tensors
    assert not [name for name in tensors if "down_blocks.0." in name]


@pytest.mark.slow
def test_run_from_another_runs_checkpoint_resumes_from_its_own(world: Any, capsys: Any) -> None:
    assert world.train("first", run__steps=3) == 0
    there = world.root / "first" / "checkpoints" / "step-00000003"
    child = world.fork("run", fault="step.begin@2:kill", run__steps=9, run__save__every=6, run__resume=str(there))
    assert world.wait(child) == 137
    capsys.readouterr()
    recipe = world.root / "run" / "recipe.yaml"
    assert main(["train", str(recipe)]) == 0
    assert "resuming from step-00000003" in capsys.readouterr().out, "killed before its first save"
    assert main(["train", str(recipe), "run.steps=10"]) == 0
    assert "resuming from step-00000009" in capsys.readouterr().out, "not from the other run any more"


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
def test_preparation_on_rank_0_may_exceed_the_timeout(shared_world: Any) -> None:
    """Indexing a large data set may take longer than `run.timeout_seconds`, which is for training."""
    world = shared_world
    settings = {"run__steps": 2, "run__timeout_seconds": 2, "data__cache__path": world.root / "patience"}
    for child in world.fork_group("patience", 2, faults={0: "data.decode@1:sleep=4"}, **settings):
        assert world.wait(child) == 0, world.out("patience")


def test_changed_base_of_frozen_weights_is_refused(world: Any, capsys: Any) -> None:
    """A part of the denoiser is frozen: it is not in the checkpoint and is read from the model folder again. After two
    steps the EMA weights differ from the weights."""
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
def test_export_of_master_and_frozen_weights_keeps_the_values_of_the_file(world: Any) -> None:
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


def test_full_disk_at_an_export_between_steps_does_not_end_the_run(world: Any, capsys: Any) -> None:
    child = world.fork("run", fault="export.begin@1:enospc", run__export__every=3, run__steps=5)
    assert world.wait(child) == 0, world.out("run")
    assert steps_logged(world.root / "run") == [1, 2, 3, 4, 5]
    assert "the disk is full" in world.out("run")


def test_checkpoint_with_a_flipped_bit_in_its_manifest_is_skipped(tmp_path: Path) -> None:
    for step in (1, 2):
        state.write(
            tmp_path, step=step, tensors={"w/denoiser/a": torch.ones(3, 4), "opt.applied": torch.tensor(1.0)},
            values={"progress": {"step": step}}, recipe_digest="ab",
        )  # fmt: skip
    manifest = tmp_path / "step-00000002" / "manifest.json"
    whole = manifest.read_bytes()
    skipped, places = 0, range(0, len(whole), 3)
    for place in places:
        broken = bytearray(whole)
        broken[place] ^= 1
        manifest.write_bytes(broken)
        newest = state.newest_valid(tmp_path)
        assert newest.path is not None
        state.read(newest.path)  # the chosen one can be read
        skipped += newest.path.name == "step-00000001"
    assert skipped > len(places) // 2
    assert json.loads(whole)["step"] == 2


@pytest.mark.parametrize(
    ("file", "change"),
    [
        ("scheduler/scheduler_config.json", {"prediction_type": "v_prediction"}),
        ("tokenizer/tokenizer_config.json", {"do_lower_case": False}),
    ],
)
def test_changed_schedule_or_tokenizer_of_the_model_is_refused(
    world: Any, capsys: Any, file: str, change: dict[str, Any]
) -> None:
    assert world.train("run", run__steps=1, run__export__every=None) == 0
    path = world.model / file
    path.write_text(json.dumps((json.loads(path.read_text()) if path.is_file() else {}) | change))
    capsys.readouterr()
    assert world.train("run", run__steps=4) == 2
    assert "E1514" in capsys.readouterr().err


def test_scheduler_settings_that_training_does_not_read_may_change(world: Any) -> None:
    assert world.train("run", run__steps=2) == 0
    path = world.model / "scheduler" / "scheduler_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"steps_offset": 7, "clip_sample": True}))
    assert world.train("run", run__steps=4) == 0


def test_non_finite_step_that_cannot_be_recorded_does_not_end_the_run(
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
def test_repeated_export_replaces_the_old_one_only_when_complete(world: Any) -> None:
    assert world.train("run", run__steps=2) == 0
    there = world.root / "run" / "exports" / "step-00000002"
    (there / "mark").write_text("")
    child = world.fork("run", fault="export.begin@1:enospc", run__steps=2)
    assert world.wait(child) == 4, world.out("run")
    assert (there / "mark").is_file(), "a full disk leaves the old export"
    assert world.train("run", run__steps=2) == 0
    assert not (there / "mark").exists()
    assert {p.name for p in there.parent.iterdir()} == {"step-00000002", "step-00000002-ema"}


@pytest.mark.slow
@pytest.mark.distributed
@pytest.mark.faults
def test_each_process_records_samples_of_a_non_finite_step(shared_world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
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
def test_processes_with_different_data_are_refused(shared_world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    build = catalogues.build

    def differ_in_rank_1(*arguments: Any, **named: Any) -> Any:
        catalogue = build(*arguments, **named)
        return replace(catalogue, fingerprint="other") if os.environ.get("RANK") == "1" else catalogue

    monkeypatch.setattr(catalogues, "build", differ_in_rank_1)
    monkeypatch.setattr(sharing, "at_address", lambda address, settings: None)  # as on another machine
    children = shared_world.fork_group("differ", 2, run__steps=2)
    assert shared_world.wait(children[1]) == 2, shared_world.out("differ")
    assert shared_world.wait(children[0]) == 6
    assert "E1209" in shared_world.out("differ")
