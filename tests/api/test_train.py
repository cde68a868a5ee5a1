"""`mezzotint.train` and `mezzotint.open_trainer` do what the command does, with the user's callbacks and loss."""

from __future__ import annotations

import hashlib
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import mezzotint as mz
from mezzotint.cli import main

WORDS = (
    "run.steps=3",
    "run.tensorboard=false",
    "run.preview.every=null",
    "run.save.every=1 step",
    "run.save.keep=null",
)


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def tiny(name: str, *words: str) -> mz.LoadedRecipe:
    return mz.recipe("tiny_cpu", *WORDS, f"run.name={name}", *words)


def bits(checkpoint: Path) -> str:
    """A hash of the tensors of a checkpoint."""
    files = sorted(checkpoint.glob("*.safetensors"))
    assert files
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()


class Recorder(mz.Callback):
    """Remembers losses, and the steps seen in all."""

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


def test_train_ends_with_the_bits_of_the_command() -> None:
    assert main(["train", "tiny_cpu", *WORDS, "run.name=command"]) == 0
    recorder = Recorder()
    run = mz.train(tiny("python"), callbacks=[recorder])
    assert run.is_finished
    assert [path.name for path in run.checkpoints] == [f"step-0000000{n}" for n in (3, 2, 1)]
    assert bits(run.checkpoints[0]) == bits(Path("runs/command/checkpoints/step-00000003"))
    assert run.history["loss"].tolist() == recorder.losses
    assert run.history["step"].tolist() == [1, 2, 3]
    assert run.step == 3
    assert run.export is not None
    assert run.export.name == "step-00000003-ema"
    assert run.recipe.run.steps == 3
    with pytest.raises(FileNotFoundError, match="no run folder"):
        mz.Run("runs")


def test_a_loop_of_ones_own_ends_with_the_same_bits_and_resumes_where_it_was_left() -> None:
    run = mz.train(tiny("usual"))
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
    assert losses == run.history["loss"].tolist()
    assert bits(trainer.run.checkpoints[0]) == bits(run.checkpoints[0])
    assert trainer.run.is_finished


def test_an_error_in_a_loop_of_ones_own_leaves_the_last_checkpoint() -> None:
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


def test_a_callback_ends_a_run_and_its_state_is_resumed() -> None:
    first, second = Recorder(), Recorder()
    run = mz.train(tiny("a"), callbacks=[first, Stopper()])
    assert run.step == 2
    run = mz.train(tiny("a"), callbacks=[second, Stopper()])
    assert (first.seen, second.seen, len(second.losses)) == (2, 3, 1)
    assert run.step == 3


def test_resuming_without_or_with_changed_code_is_refused() -> None:
    mz.train(tiny("a"), callbacks=[Stopper()], loss=squared)
    with pytest.raises(mz.RecipeError, match=r"trained with the loss .*squared sha256") as caught:
        mz.train(tiny("a"), callbacks=[Stopper()])
    assert "E1522" in str(caught.value)
    assert main(["train", "runs/a/recipe.yaml"]) == 2, "the command has no loss function either"
    with pytest.raises(mz.RecipeError, match=r"the loss is .*absolute"):
        mz.train(tiny("a"), callbacks=[Stopper()], loss=absolute)
    run = mz.train(tiny("a", "run.allow_change=[code]"), callbacks=[Stopper()], loss=absolute)
    assert run.step == 3


def test_ones_own_loss_is_what_is_trained() -> None:
    plain = ("objective.min_snr_gamma=null", "objective.noise_offset=0")
    usual = mz.train(tiny("usual", *plain)).history["loss"]
    own = mz.train(tiny("own", *plain), loss=squared).history["loss"]
    assert own == pytest.approx(usual, rel=1e-5)
    l1 = mz.train(tiny("l1", *plain, "objective.loss=l1")).history["loss"]
    assert mz.train(tiny("absolute", *plain), loss=absolute).history["loss"] == pytest.approx(l1, rel=1e-5)


@pytest.mark.parametrize(
    ("loss", "what"),
    [
        (lambda predicted, target, batch: (predicted - target).square(), r"shape \(4, 4, 8, 8\)|shape \(\d"),
        (lambda predicted, target, batch: 0.5, "float"),
        (lambda predicted, target, batch: torch.zeros(len(predicted), dtype=torch.int64), "int64"),
    ],
)
def test_a_loss_of_another_shape_is_refused(loss: Callable[..., Any], what: str) -> None:
    with pytest.raises(mz.RecipeError, match=what):
        mz.train(tiny("a"), loss=loss)


def test_callbacks_are_told_apart_by_their_class() -> None:
    with pytest.raises(mz.RecipeError, match="several of the class Recorder"):
        mz.train(tiny("a"), callbacks=[Recorder(), Recorder()])
    with pytest.raises(mz.RecipeError, match=r"no mezzotint\.Callback"):
        mz.train(tiny("a"), callbacks=[print])  # type: ignore[list-item]


def test_a_callback_is_called_when_its_interval_says() -> None:
    class Seldom(Recorder):
        every = mz.Every(2, "steps")
        at_end = True

    seldom = Seldom()
    mz.train(tiny("a"), callbacks=[seldom])
    assert seldom.seen == 2, "after step 2 and at the end"


def test_every_problem_of_a_recipe_is_raised_at_once() -> None:
    with pytest.raises(mz.RecipeError) as caught:
        mz.recipe("tiny_cpu", "optim.rl=1", "data.batch_size=0")
    assert len(caught.value.problems) == 2


def test_handlers_are_restored_and_another_thread_sets_none() -> None:
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)}
    mz.train(tiny("a"))
    assert {number: signal.getsignal(number) for number in before} == before
    runs: list[mz.Run] = []
    thread = threading.Thread(target=lambda: runs.append(mz.train(tiny("b"))))
    thread.start()
    thread.join()
    assert runs[0].is_finished


INTERRUPTED = """
import os, signal, sys, types
import mezzotint as mz
if sys.argv[1] == "notebook":
    Shell = type("ZMQInteractiveShell", (), {})
    sys.modules["IPython"] = types.SimpleNamespace(get_ipython=Shell, version_info=(9, 0))

class Interrupt(mz.Callback):
    def on_step(self, report, progress):
        if progress.step == 2:
            os.kill(os.getpid(), signal.SIGINT)
        return mz.Action.NOTHING

recipe = mz.recipe("tiny_cpu", "run.steps=50", "run.name=a", "run.tensorboard=false")
try:
    run = mz.train(recipe, callbacks=[Interrupt()])
    print("returned", run.step, run.checkpoints[0].name, run.is_finished)
except KeyboardInterrupt as error:
    print("KeyboardInterrupt", mz.Run("runs/a").checkpoints[0].name, "saved" in str(error))
"""


@pytest.mark.parametrize(
    ("where", "last"),
    [
        ("script", "KeyboardInterrupt step-00000003 True"),
        ("notebook", "returned 3 step-00000003 False"),
    ],
)
def test_an_interrupt_saves_and_returns_in_a_notebook_and_is_raised_elsewhere(
    where: str, last: str, tmp_path: Path
) -> None:
    (tmp_path / "run.py").write_text(INTERRUPTED)
    done = subprocess.run([sys.executable, "run.py", where], cwd=tmp_path, capture_output=True, check=False)
    lines = done.stdout.decode().split("\n")
    assert lines[-2] == last, done.stderr[-2000:]
    progress = [line for line in lines if "step 1/50" in line]
    assert [line.startswith("\r") for line in progress] == [where == "notebook"]
