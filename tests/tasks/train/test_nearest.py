"""The training pictures that are nearest to previews, and the report that tells of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from mezzotint.run_folder import RunFolder
from mezzotint.tasks.train import _nearest


@pytest.mark.slow
def test_a_run_with_held_out_pictures_ends_with_its_overfit_report(
    world: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    copied: list[str] = []

    def learnt_by_heart(folder: RunFolder) -> list[Path]:
        """Stands for previews of a model that draws a training picture."""
        report = [json.loads(line) for line in (folder.path / "data_report.jsonl").read_text().splitlines()]
        held = (folder.logs / "held_out.txt").read_text().splitlines()
        copied.append(next(one["id"] for one in report if not any(path.endswith(one["id"]) for path in held)))
        place = folder.samples / "step-00000003" / "00-raw.png"
        place.parent.mkdir(parents=True)
        with Image.open(world.pictures / copied[0]) as image:
            image.convert("RGB").resize((48, 48)).save(place)
        return [place]

    monkeypatch.setattr(_nearest, "last_previews", learnt_by_heart)
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
    (preview,) = facts["nearest"]["previews"]
    assert {preview[space]["picture"] for space in ("pixels", "latents")} == set(copied)
    assert preview["pixels"]["apart"] < preview["pixels"]["usual"]
    assert any(words.startswith("A preview is very close") for words in facts["words"])
    assert all(words in (logs / "overfit.txt").read_text() for words in facts["words"])


def test_previews_are_those_of_the_last_step_and_no_strips_of_clips(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path).open()
    assert _nearest.last_previews(folder) == []
    for name in ("step-99999999/00-raw.png", "step-100000000/00-raw.png", "step-100000000/01-raw.png"):
        (folder.samples / name).parent.mkdir(exist_ok=True)
        (folder.samples / name).touch()
    (folder.samples / "step-100000000" / "01-raw.mp4").touch()
    assert _nearest.last_previews(folder) == [folder.samples / "step-100000000" / "00-raw.png"]


def test_usual_is_the_median_distance_to_the_nearest_other() -> None:
    vectors = np.array([[0.0, 0.0], [1.0, 1.0], [3.0, 3.0], [10.0, 10.0]])
    assert _nearest._usual(vectors) == pytest.approx(1.5), "of 1, 1, 2 and 7"
    assert _nearest._usual(vectors[:1]) == 0.0


def test_a_mirrored_preview_is_looked_at_too(tmp_path: Path) -> None:
    pixels = np.zeros((16, 16, 3), np.uint8)
    pixels[:, :8] = 255
    Image.fromarray(pixels).save(tmp_path / "a.png")
    one, other = _nearest._encoded(tmp_path / "a.png", lambda seen: torch.cat([seen, seen], dim=1))
    assert one.shape == (3, 8, 8)
    assert np.array_equal(one, other[..., ::-1])
    assert one[0, 0, 0] == 1.0
