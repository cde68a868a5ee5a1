"""`mezzotint prove`: eight steps without interruption against eight with a kill in between."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest
import torch

from mezzotint.cli import main
from mezzotint.errors import CheckpointError
from mezzotint.run_folder import RunFolder
from mezzotint.tasks.proof import prove
from mezzotint.training.checkpoints import state
from mezzotint.training.update import Update


@pytest.mark.slow
def test_prove_reports_success_and_leaves_no_files(world: Any, capfd: pytest.CaptureFixture[str]) -> None:
    assert (
        world.train("proved", verb="prove", run__epochs=2, run__steps=None, run__seed=-1) == 0
    )  # the same random seed for both runs
    said = capfd.readouterr().out
    assert "are bitwise identical: 8 losses and norms" in said
    assert "step 1/8" not in said
    assert not (world.root / "proved").exists()
    assert not list(world.root.glob(".*partial"))


@pytest.mark.slow
@pytest.mark.distributed
@pytest.mark.parametrize("runtime", ["ddp", "fsdp"])
def test_prove_with_two_processes(
    runtime: str, world: Any, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    importlib.import_module(f"mezzotint.runtimes.{runtime}")  # once, instead of in each of six forked processes
    recipe, *words = world.words("proved", run__runtime=runtime, run__epochs=2, run__steps=None)
    assert main(["prove", recipe, *words, "--processes=2"]) == 0, capfd.readouterr().err
    printed = capfd.readouterr()
    assert "8 steps of 2 processes without interruption" in printed.out
    assert "are bitwise identical: 8 losses and norms" in printed.out
    assert printed.err == ""
    assert not list(world.root.glob(".*partial"))


def test_prove_under_a_launcher_asks_for_processes_option(
    world: Any, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    for name, value in {"RANK": "0", "WORLD_SIZE": "2"}.items():
        monkeypatch.setenv(name, value)
    assert world.train("proved", verb="prove") == 2
    assert "with --processes=N for several" in capfd.readouterr().err


@pytest.mark.slow
def test_prove_fails_if_a_run_differs_or_fails(
    world: Any, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    with monkeypatch.context() as patch:  # an update that loses its moments when a run is resumed
        load = Update.load
        patch.setattr(Update, "load", lambda self, tensors: load(self, _without_moments(tensors)))
        assert world.train("wrong", verb="prove") == 2
        assert "error[E1517]" in capfd.readouterr().err
    assert world.train("none", verb="prove", data__max_samples=4, data__batch_size=64, data__remainder="drop") == 2
    said = capfd.readouterr().err
    assert "error[E1207]" in said
    assert "error[E1518]" in said


def _without_moments(tensors: Any) -> Any:
    return {name: torch.zeros_like(t) if name.startswith("opt.mean") else t for name, t in tensors.items()}


def test_comparison_detects_one_bit_of_one_tensor(tmp_path: Path) -> None:
    runs = [RunFolder(tmp_path / name).open() for name in "ab"]
    for number, run in enumerate(runs):
        run.metrics.write_text('{"step": 1, "loss": 0.5, "norm": 1.0, "samples_digest": "x"}\n')
        content = torch.tensor([1.0, -0.0 if number else 0.0])
        state.write(run.checkpoints, step=8, tensors={"w/a": content}, values={}, recipe_digest="")
    with pytest.raises(CheckpointError, match="the tensor w/a") as caught:
        prove.compare_runs(*runs)
    assert caught.value.code == "E1517"
    runs[1].metrics.write_text('{"step": 1, "loss": 0.25, "norm": 1.0, "samples_digest": "x"}\n')
    with pytest.raises(CheckpointError, match="step 1"):
        prove.compare_runs(*runs)
