"""`mezzotint.train` and `mezzotint.open_trainer` do what the command does, with the user's callbacks and loss."""

from __future__ import annotations

import hashlib
import os
import signal
import sys
import threading
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import pytest
import torch
from torch import Tensor

import mezzotint as mz
from mezzotint.cli import main
from support.forked import exit_status

WORDS = (
    "run.steps=3",
    "run.tensorboard=false",
    "run.preview.every=null",
    "run.save.every=1 step",
    "optim.accumulation=1",
    "data.resolution=32",
    "data.buckets.step=8",
    "data.batch_size=2",
    "run.save.keep=null",
)


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def tiny(name: str, *words: str) -> mz.LoadedRecipe:
    return mz.recipe("tiny_cpu", *WORDS, "run.export.every=null", f"run.name={name}", *words)


def bits(checkpoint: Path) -> str:
    """A hash of the tensors of a checkpoint."""
    files = sorted(checkpoint.glob("*.safetensors"))
    assert files
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()


class Recorder(mz.Callback):
    """Records losses, and counts the steps of all starts."""

    def __init__(self) -> None:
        self.losses: list[float] = []
        self.seen = 0

    def on_step(self, report: mz.StepReport | None, progress: mz.Progress) -> mz.Action:
        assert report is not None
        self.losses.append(report.loss)
        self.seen += 1
        return mz.Action.NOTHING

    def state(self) -> dict[str, Any]:
        return {"seen": self.seen}

    def load(self, state: Any) -> None:
        self.seen = state.get("seen", 0)


class Stopper(mz.Callback):
    every = mz.Every(2, "steps")

    def on_step(self, report: mz.StepReport | None, progress: mz.Progress) -> mz.Action:
        return mz.Action.STOP if progress.step == 2 else mz.Action.NOTHING


def squared(predicted: Tensor, target: Tensor, batch: mz.LossBatch) -> Tensor:
    assert predicted.shape == target.shape == batch.latents.shape == batch.noise.shape == batch.noisy_latents.shape
    assert batch.timesteps.shape == batch.weight.shape == (len(predicted),) == (len(batch.captions),)
    assert torch.equal(target, batch.noise), "tiny_cpu predicts epsilon"
    return (predicted - target).square().mean(dim=(1, 2, 3))


def absolute(predicted: Tensor, target: Tensor, batch: mz.LossBatch) -> Tensor:
    return (predicted - target).abs().mean(dim=(1, 2, 3))


@pytest.fixture(scope="module")
def command(tmp_path_factory: pytest.TempPathFactory) -> mz.Run:
    """A run of the command."""
    with pytest.MonkeyPatch.context() as patched:
        folder = tmp_path_factory.mktemp("command")
        patched.chdir(folder)
        assert main(["train", "tiny_cpu", *WORDS, "run.name=command"]) == 0
        return mz.Run(folder / "runs" / "command")


def test_train_ends_with_the_bits_of_the_command(command: mz.Run) -> None:
    recorder = Recorder()
    run = mz.train(tiny("python", "run.export.every=3 steps"), callbacks=[recorder])
    assert run.is_finished
    assert [path.name for path in run.checkpoints] == [f"step-0000000{n}" for n in (3, 2, 1)]
    assert bits(run.checkpoints[0]) == bits(command.checkpoints[0])
    assert run.history["loss"].tolist() == recorder.losses
    assert run.history["step"].tolist() == [1, 2, 3]
    assert run.step == 3
    assert run.export is not None
    assert run.export.name == "step-00000003-ema"
    assert run.recipe.run.steps == 3
    with pytest.raises(FileNotFoundError, match="not a run folder"):
        mz.Run("runs")


def test_custom_loop_is_bit_identical_and_resumes(command: mz.Run) -> None:
    losses = []
    with mz.open_trainer(tiny("own")) as trainer:
        for step in trainer.batches:
            losses.append(trainer.train_step(step).loss)
            if trainer.step == 2:
                break
    assert mz.Run("runs/own").checkpoints[0].name == "step-00000002"
    assert not mz.Run("runs/own").is_finished
    with mz.open_trainer(tiny("own")) as trainer:
        assert "denoiser" in trainer.modules
        losses += [trainer.train_step(step).loss for step in trainer.batches]
        exported = trainer.export()
    assert [path.name for path in exported] == ["step-00000003", "step-00000003-ema"]
    assert losses == command.history["loss"].tolist()
    assert bits(trainer.run.checkpoints[0]) == bits(command.checkpoints[0])
    assert trainer.run.is_finished


def test_error_in_a_custom_loop_keeps_the_last_checkpoint() -> None:
    def fail_at(last: int) -> None:
        with mz.open_trainer(tiny("own", "run.save.every=2 steps")) as trainer:
            for step in trainer.batches:
                trainer.train_step(step)
                if trainer.step == last:
                    raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail_at(3)
    run = mz.Run("runs/own")
    assert "step-00000002" in [path.name for path in run.checkpoints]


def test_callback_stops_a_run_and_its_state_is_resumed() -> None:
    first, second = Recorder(), Recorder()
    run = mz.train(tiny("a"), callbacks=[first, Stopper()])
    assert run.step == 2
    run = mz.train(tiny("a"), callbacks=[second, Stopper()])
    assert (first.seen, second.seen, len(second.losses)) == (2, 3, 1)
    assert run.step == 3


def test_resuming_with_missing_or_changed_loss_function_is_refused() -> None:
    mz.train(tiny("a"), callbacks=[Stopper()], loss=squared)
    with pytest.raises(mz.RecipeError, match=r"trained with the loss .*squared sha256") as caught:
        mz.train(tiny("a"), callbacks=[Stopper()])
    assert "E1522" in str(caught.value)
    assert main(["train", "runs/a/recipe.yaml"]) == 2, "the command has no loss function either"
    with pytest.raises(mz.RecipeError, match=r"the loss is .*absolute"):
        mz.train(tiny("a"), callbacks=[Stopper()], loss=absolute)
    run = mz.train(tiny("a", "run.allow_change=[code]"), callbacks=[Stopper()], loss=absolute)
    assert run.step == 3


def test_custom_loss_is_the_trained_loss() -> None:
    plain = ("objective.min_snr_gamma=null", "objective.noise_offset=0", "run.steps=1")
    mse = mz.train(tiny("mse", *plain)).history["loss"]
    assert mz.train(tiny("squared", *plain), loss=squared).history["loss"] == pytest.approx(mse, rel=1e-5)
    l1 = mz.train(tiny("l1", *plain, "objective.loss=l1")).history["loss"]
    assert mz.train(tiny("absolute", *plain), loss=absolute).history["loss"] == pytest.approx(l1, rel=1e-5)
    assert l1[0] != mse[0]


@pytest.mark.parametrize(
    ("loss", "what"),
    [
        (lambda predicted, target, batch: (predicted - target).square(), r"shape \(4, 4, 8, 8\)|shape \(\d"),
        (lambda predicted, target, batch: 0.5, "float"),
        (lambda predicted, target, batch: torch.zeros(len(predicted), dtype=torch.int64), "int64"),
    ],
)
def test_loss_of_wrong_shape_or_type_is_refused(loss: Callable[..., Any], what: str) -> None:
    with pytest.raises(mz.RecipeError, match=what):
        mz.train(tiny("a"), loss=loss)


def test_two_callbacks_of_one_class_are_refused() -> None:
    with pytest.raises(mz.RecipeError, match="several of class Recorder"):
        mz.train(tiny("a"), callbacks=[Recorder(), Recorder()])
    with pytest.raises(mz.RecipeError, match=r"not a mezzotint\.Callback"):
        mz.train(tiny("a"), callbacks=[print])  # type: ignore[list-item]


def test_callback_is_called_at_its_interval() -> None:
    class AtIntervals(Recorder):
        every = mz.Every(2, "steps")
        at_end = True

    callback = AtIntervals()
    mz.train(tiny("a"), callbacks=[callback])
    assert callback.seen == 2, "after step 2 and at the end"


def test_all_problems_of_a_recipe_are_raised_together() -> None:
    with pytest.raises(mz.RecipeError) as caught:
        mz.recipe("tiny_cpu", "optim.rl=1", "data.batch_size=0")
    assert len(caught.value.problems) == 2


def test_signal_handlers_are_restored_and_not_set_in_other_threads() -> None:
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)}
    mz.train(tiny("a", "run.steps=1"))
    assert {number: signal.getsignal(number) for number in before} == before
    runs: list[mz.Run] = []
    thread = threading.Thread(target=lambda: runs.append(mz.train(tiny("b", "run.steps=1"))))
    thread.start()
    thread.join()
    assert runs[0].is_finished


class Interrupt(mz.Callback):
    def on_step(self, report: mz.StepReport | None, progress: mz.Progress) -> mz.Action:
        if progress.step == 2:
            os.kill(os.getpid(), signal.SIGINT)
        return mz.Action.NOTHING


def train_interrupted(output: Path, *, in_notebook: bool) -> NoReturn:
    """Trains in this process, which gets SIGINT in step 2; prints what happened, and exits."""
    status = 1
    try:
        handle = os.open(output, os.O_WRONLY | os.O_CREAT)
        os.dup2(handle, 1)
        sys.stdout, sys.stderr = os.fdopen(1, "w"), sys.__stderr__
        if in_notebook:
            shell = type("ZMQInteractiveShell", (), {})
            sys.modules["IPython"] = types.SimpleNamespace(get_ipython=shell, version_info=(9, 0))  # type: ignore[assignment]
        try:
            run = mz.train(tiny("a", "run.steps=50", "run.save.every=null"), callbacks=[Interrupt()])
            print("returned", run.step, run.checkpoints[0].name, run.is_finished)
        except KeyboardInterrupt as error:
            print("KeyboardInterrupt", mz.Run("runs/a").checkpoints[0].name, "saved" in str(error))
        sys.stdout.flush()
        status = 0
    finally:
        os._exit(status)


@pytest.mark.parametrize(
    ("in_notebook", "last"),
    [(False, "KeyboardInterrupt step-00000003 True"), (True, "returned 3 step-00000003 False")],
    ids=["script", "notebook"],
)
def test_interrupt_saves_and_returns_in_a_notebook_and_raises_in_a_script(
    in_notebook: bool, last: str, tmp_path: Path
) -> None:
    child = os.fork()
    if not child:
        train_interrupted(tmp_path / "output.txt", in_notebook=in_notebook)
    assert exit_status(child) == 0
    lines = (tmp_path / "output.txt").read_bytes().decode().split("\n")
    assert lines[-2] == last
    progress = [line for line in lines if "step 1/50" in line]
    assert [line.startswith("\r") for line in progress] == [in_notebook]
