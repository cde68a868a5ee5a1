"""Problems that would end a run late are reported before loading; a deleted run folder is noticed within a step."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from diffusers.models.downsampling import Downsample2D

from mezzotint import durable
from mezzotint.errors import RecipeError, StorageError
from mezzotint.run_folder import RunFolder
from mezzotint.runtimes.base import Launch, Runtime
from mezzotint.settings.base import with_values
from mezzotint.settings.reading.read import read_text, resolve_paths
from mezzotint.settings.resolved import has_open_gradient_dtype
from mezzotint.tasks import assemble
from mezzotint.tasks.check import room
from mezzotint.tasks.resolving import resolve
from mezzotint.training.loop import Trainer
from mezzotint.training.step import TrainStep


def test_full_disk_is_reported_before_loading_the_model(
    world: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(durable, "free_bytes", lambda folder: 5_000_000)  # a checkpoint has 3.3 MB
    with monkeypatch.context() as patch:
        patch.setattr(assemble, "open_model", lambda *arguments: pytest.fail("the model was loaded"))
        assert world.train("tight") == 4
        said = capsys.readouterr().err
        assert "error[E1710]" in said
        assert "5,000,000 are free" in said
    assert not (world.root / "tight").exists()
    monkeypatch.setattr(durable, "free_bytes", lambda folder: 20_000_000)
    assert world.train("fits", run__steps=1) == 0


def test_too_little_memory_is_reported_before_loading_the_model(
    world: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(room, "free_device_memory", lambda device, cap: 2_000_000)
    monkeypatch.setattr(assemble, "open_model", lambda *arguments: pytest.fail("the model was loaded"))
    assert world.train("small") == 5
    assert "error[E1751]" in capsys.readouterr().err


def test_untrained_networks_are_not_checked(tmp_path: Path) -> None:
    """Checking a text encoder would import transformers, even if text is cached."""
    recipe = resolve_paths(read_text("schema: 1", overrides=["model.path=tiny-sd", "model.weights=random"]))
    files, asked_for = assemble.open_files(recipe), list[str]()

    class Watched:
        spec, parts = files.spec, files.parts

        def shapes(self, part: str) -> Any:
            asked_for.append(part)
            return files.shapes(part)

    runtime = Runtime(torch.device("cpu"), Launch(), recipe.run)
    room.require_disk_space(resolve(recipe, 1), Watched(), RunFolder(tmp_path), runtime)  # type: ignore[arg-type]
    assert asked_for == ["denoiser"]


@pytest.mark.parametrize(("resolution", "refused"), [(32, True), (64, False)])
def test_images_too_small_for_bf16_are_refused(resolution: int, refused: bool) -> None:
    """As in SD: eight pixels per latent and three downsamplings, so 32 pixels become 4, 2 and 1."""
    size = [f"data.resolution={resolution}", "data.buckets.step=32", "data.buckets.shape=square"]
    recipe = read_text("schema: 1", overrides=[*size, "run.precision=bf16"]).recipe
    denoiser = torch.nn.Sequential(*(Downsample2D(4) for _ in range(3)))
    dataset: Any = SimpleNamespace(timeline=SimpleNamespace(columns=SimpleNamespace(bucket=np.zeros(3, np.int16))))
    for device, precision in (("cuda", "bf16"), ("cpu", "fp32")):
        room.refuse_too_small(with_values(recipe, {"run.precision": precision}), dataset, denoiser, 8, device)
    if not refused:
        room.refuse_too_small(recipe, dataset, denoiser, 8, "cpu")
        return
    with pytest.raises(RecipeError, match="sides are at least 40") as caught:
        room.refuse_too_small(recipe, dataset, denoiser, 8, "cpu")
    assert caught.value.code == "E1519"


def test_train_and_check_refuse_too_small_images(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object) -> None:
        raise RecipeError("too small", code="E1519")

    monkeypatch.setattr(room, "refuse_too_small", refuse)
    assert [world.train(verb, verb=verb) for verb in ("train", "check")] == [2, 2]


@pytest.mark.parametrize("how", ["gone", "another", "read-only"])
def test_deleted_run_folder_ends_the_run_within_a_step(
    world: Any, how: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    steps, loss, run = [], TrainStep.loss, world.root / how

    def disturbed(trainer: Trainer, batch: Any, step: int) -> Any:
        steps.append(step)
        if step == 2 and how == "read-only":  # chmod does not stop root, so the error is simulated
            monkeypatch.setattr(os, "access", lambda path, mode: False)
        elif step == 2:
            shutil.rmtree(run)
            if how == "another":
                (run / "checkpoints").mkdir(parents=True)
                (run / "lock").write_text("another's")
        return loss(trainer, batch, step)

    monkeypatch.setattr(TrainStep, "loss", disturbed)
    assert world.train(how) == 4
    said = capsys.readouterr().err
    assert "error[E1520]" in said
    assert max(steps) == 2
    if how == "gone":
        assert not run.exists(), "the folder is not created again"
    if how == "another":
        assert sorted(path.name for path in run.rglob("*")) == ["checkpoints", "lock"]
        assert (run / "lock").read_text() == "another's"


def disturb(monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
    """Calls a function in the second step of a run."""
    loss = TrainStep.loss

    def disturbed(trainer: Trainer, batch: Any, step: int) -> Any:
        if step == 1:
            act()
        return loss(trainer, batch, step)

    monkeypatch.setattr(TrainStep, "loss", disturbed)


def test_file_named_checkpoints_ends_the_run_with_status_4(
    world: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    checkpoints = world.root / "run" / "checkpoints"

    def replace() -> None:
        shutil.rmtree(checkpoints)
        checkpoints.write_text("mine")

    disturb(monkeypatch, replace)
    assert world.train("run", run__steps=3, run__save__every="2 steps") == 4
    captured = capsys.readouterr()
    assert "warning: the checkpoint of step 2 could not be saved" in captured.out
    assert "error[E1704]" in captured.err
    assert f"{checkpoints} is a file, and a folder is needed" in captured.err
    assert checkpoints.read_text() == "mine"


def test_pipe_named_metrics_prevents_the_report_but_not_the_run(
    world: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    metrics = world.root / "run" / "metrics.jsonl"

    def replace() -> None:
        metrics.unlink()
        os.mkfifo(metrics)

    disturb(monkeypatch, replace)
    assert world.train("run", run__steps=3) == 0
    captured = capsys.readouterr()
    assert f"warning: the report could not be written: {metrics}: is a pipe" in captured.out
    assert (world.root / "run" / "exports" / "step-00000003").is_dir()
    assert RunFolder(world.root / "run").events()[-1]["event"] == "finished"


def test_deleted_folder_is_a_storage_error(tmp_path: Path) -> None:
    with pytest.raises(StorageError) as caught:
        durable.write_file(tmp_path / "gone" / "x", "x")
    assert caught.value.code == "E1520"
    with pytest.raises(FileNotFoundError), durable.storage_errors(tmp_path / "x"):
        raise FileNotFoundError(errno.ENOENT, "x")
    assert RunFolder(tmp_path / "never-locked").describe_loss() == ""


@pytest.mark.parametrize(
    ("words", "is_open"),
    [
        (["run.precision=bf16", "run.weight_dtype=same"], True),
        (["run.precision=bf16", "run.weight_dtype=same", "run.gradient_dtype=fp32"], False),
        (["run.precision=bf16", "run.weight_dtype=same", "run.runtime=fsdp"], False),
        (["run.precision=bf16", "run.weight_dtype=fp32"], False),
        (["run.precision=fp32"], False),
    ],
)
def test_gradient_sum_dtype_is_open_for_low_precision_weights(words: list[str], is_open: bool) -> None:
    assert has_open_gradient_dtype(read_text("schema: 1", overrides=words).recipe) is is_open


def test_chosen_gradient_sum_dtype_is_kept() -> None:
    assert resolve(read_text("schema: 1").recipe, 1).choices == {"seed": 0}
    chosen = read_text("schema: 1", overrides=["run.precision=bf16", "run.gradient_dtype=fp32"]).recipe
    assert resolve(chosen, 1).choices == {"seed": 0, "run.gradient_dtype": "fp32"}
