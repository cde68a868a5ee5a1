"""Weights & Biases: one run for all attempts, and at most one error."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from mezzotint.errors import RecipeError, StorageError
from mezzotint.run_folder import RunFolder
from mezzotint.settings.sections.run import WandbSettings
from mezzotint.training.callbacks.wandb_log import WandbLog
from mezzotint.training.progress import Progress
from support.trainers import log_steps, report

OFFLINE = WandbSettings(mode="offline")


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Records the calls to a fake wandb package."""
    sent: list[dict[str, Any]] = []
    run = SimpleNamespace(log=sent.append, finish=lambda: None, define_metric=lambda *_, **__: None)
    package = SimpleNamespace(init=lambda **words: sent.append({"id": words["id"]}) or run, Settings=SimpleNamespace)
    monkeypatch.setitem(sys.modules, "wandb", package)
    return sent


def log(folder: RunFolder, every: int = 2) -> WandbLog:
    return WandbLog(folder, OFFLINE, every, name="fox", recipe={})


def test_resumed_run_continues_the_same_wandb_run(folder: RunFolder, sent: list[dict[str, Any]]) -> None:
    first, second = log(folder), log(folder)
    log_steps(first, range(3))
    second.load(first.state())
    log_steps(second, range(3, 4))
    assert [line["step"] for line in sent if "step" in line] == [1, 2, 4]
    assert len({line["id"] for line in sent if "id" in line}) == 1


def test_wandb_failure_is_reported_once(folder: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(**_: Any) -> None:
        raise OSError("no network\nat all")

    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(init=refuse, Settings=SimpleNamespace))
    callback = log(folder, every=1)
    with pytest.raises(StorageError, match=r"rejected the data \(no network\)"):
        callback.on_step(report(0), Progress(step=1, last_step=9))
    callback.on_step(report(1), Progress(step=2, last_step=9))
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(RecipeError, match="wandb"):
        log(folder)
