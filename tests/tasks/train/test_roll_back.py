"""Rolling back: diverged training returns to the last good checkpoint, also after kills."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from mezzotint import outside
from mezzotint.errors import RecipeError
from mezzotint.settings.reading.read import read_text
from mezzotint.training.loop import Trainer
from mezzotint.training.step import TrainStep
from support.divergence import SETTINGS, events, poisoning
from support.run_folders import tensors_of


@pytest.fixture
def poison(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    return poisoning(monkeypatch)


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return {name: tensor for name, tensor in tensors_of(folder).items() if name.startswith(("w/", "ema/"))}


def same(mine: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return mine.keys() == other.keys() and all(torch.equal(tensor, other[name]) for name, tensor in mine.items())


@pytest.mark.slow
def test_roll_back_skips_batches_and_survives_kills(
    world: Any, poison: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    poison(5, 6)  # steps 6 and 7; the checkpoint of step 6 is between them
    assert world.train("stops", **SETTINGS | {"run__on_divergence": "stop"}) == 3
    capsys.readouterr()
    assert world.train("back", **SETTINGS) == 0
    said = capsys.readouterr().out
    assert "rolled back to the checkpoint of step 4 (1 of 3); the batches up to step 7 are skipped" in said
    assert events(world.root / "back")[0] | {"time": ""} == {
        "event": "rolled-back", "time": "", "to": 4, "at": 7, "number": 1, "rate": 1.0,
    }  # fmt: skip
    poison(4, 5, 6)
    assert world.train("skips", **SETTINGS | {"run__max_nonfinite_steps": 9}) == 0
    assert same(weights(world.root / "back"), weights(world.root / "skips")), "as if steps 5 to 7 changed nothing"
    bad = outside.read_lines(world.root / "back" / "bad_steps.jsonl")
    assert [(line["step"], line["what"]) for line in bad] == [(6, "loss"), (7, "loss")]
    assert all(len(line["keys"]) == len(line["timesteps"]) == len(line["losses"]) > 0 for line in bad)
    poison(5, 6)
    whole = world.end("back")
    for fault in ("roll-back.recorded@1", "checkpoint.renamed@1"):  # the second one is that of step 7
        assert world.wait(world.fork("killed", fault=f"{fault}:kill", **SETTINGS)) == 137, world.out("killed")
    assert world.wait(world.fork("killed", **SETTINGS)) == 0, world.out("killed")
    assert world.end("killed") == whole
    assert len(events(world.root / "killed")) == 1


def test_roll_back_with_same_batches_and_rate_is_refused() -> None:
    with pytest.raises(RecipeError, match=r"run\.roll_back\.factor below 1"):
        read_text("schema: 1", overrides=["run.roll_back.skip=false"])


def test_nonfinite_weight_is_named_and_never_saved(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    loss, spoilt = TrainStep.loss, "denoiser/conv_in.weight"

    def once(trainer: Trainer, batch: Any, step: int) -> Any:
        if step == 4 and not trainer.progress.rolled_back:
            trainer.model.update.masters[spoilt].view(-1)[3] = math.inf
        return loss(trainer, batch, step)

    monkeypatch.setattr(TrainStep, "loss", once)
    assert world.train("weight", **SETTINGS | {"run__save__every": 1}) == 0
    (event,) = events(world.root / "weight")
    assert (event["to"], event["at"]) in ((4, 5), (4, 6)), "at the next save, or as the second bad step"
    bad = outside.read_lines(world.root / "weight" / "bad_steps.jsonl")
    assert bad[0]["what"] == f"weight {spoilt}"
    assert all(bool(torch.isfinite(tensor).all()) for tensor in weights(world.root / "weight").values())
    assert json.loads((world.root / "weight" / "environment.json").read_text())
