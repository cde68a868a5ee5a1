"""The overfit report of a run with held-out images."""

from __future__ import annotations

import json
from typing import Any

import pytest


@pytest.mark.slow
def test_run_with_held_out_images_writes_overfit_report(world: Any, capsys: pytest.CaptureFixture[str]) -> None:
    settings = {"data__cache__latents": True, "data__holdout__fraction": 0.3, "run__validation__training_fraction": 0.5}
    settings |= {"run__steps": 3, "run__validation__every": 1, "data__crop": "center", "data__flip": 0}
    assert world.train("run", **settings) == 0
    logs = world.root / "run" / "logs"
    assert str(logs / "overfit.txt") in capsys.readouterr().out
    facts = json.loads((logs / "overfit.json").read_text())
    lines = [json.loads(line) for line in (world.root / "run" / "metrics.jsonl").read_text().splitlines()]
    held = {line["step"]: line for line in lines if "val/loss" in line}
    assert facts["steps"] == {"first": 0, "best": facts["best"]["trained"]["step"], "last": 3}
    assert facts["best"]["trained"]["loss"] == min(line["val/loss"] for line in held.values())
    assert facts["best"]["average"]["loss"] == min(line["val/loss_shadow"] for line in held.values())
    assert facts["gap"]["last"] == pytest.approx(held[3]["val/loss"] - held[3]["val/train"])
    assert facts["quartiles"][2]["gap"]["last"] == pytest.approx(
        held[3]["val/loss_at/quartile_2"] - held[3]["val/train_at/quartile_2"]
    )
    assert all(words in (logs / "overfit.txt").read_text() for words in facts["words"])
