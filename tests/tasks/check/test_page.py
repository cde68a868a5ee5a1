"""Text and JSON output of `check`: settings with their origin, and sizes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mezzotint.settings.reading.read import read
from mezzotint.tasks.check import check
from mezzotint.tasks.check import page as _check_page
from support.check_command import checked


def test_check_output_fits_the_terminal(ready: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert check.run(["recipe.yaml", "optim.lr=2e-4"]) == 0
    page = capsys.readouterr().out
    assert max(map(len, page.splitlines())) <= _check_page.WIDTH + len(str(ready))
    for words in ("optim.lr", "0.0002", "command line", "line 2", "64×64", "3 batches", "a batch of 1", "trained",
                  "frozen", "5 steps", "4.0 epochs", "a checkpoint", "not measured"):  # fmt: skip
        assert words in " ".join(page.split()) or words == "3 batches", words
    [row] = [line.split() for line in page.splitlines() if line.split()[:1] == ["80×48"]]
    assert row[-1] == "less", "smaller buckets are not measured"


def test_every_non_default_setting_has_its_origin(quick: Path) -> None:
    reading = read("recipe.yaml", ["optim.ema={rule: ramp}", "run.steps=7"])
    origin = _check_page.origin_of_settings(reading)
    assert origin["model.path"] == "line 2"
    assert origin["run.steps"] == origin["optim.ema.rule"] == "command line"
    assert origin["data.buckets.step"] == "line 8"
    assert "optim.ema.decay" not in origin
    assert "optim.lr" not in origin
    assert _check_page.values_of(reading.recipe)["optim.lr"] == 1e-5


def test_json_output_contains_the_whole_check(ready: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert check.run(["recipe.yaml", "--json", "data.cache.latents=true"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["problems"] == []
    assert document["recipe"]["settings"]["run.steps"] == 20
    assert {row["bucket"]: row["batches"] for row in document["buckets"]} == {"64×64": 3, "80×48": 2}
    assert {part["name"]: part["loaded"] for part in document["parts"]} == {
        "denoiser": True, "text_encoder": True, "vae": False}  # fmt: skip
    assert document["memory"]["peak"] > document["memory"]["weights"] > 0
    assert document["length"] == {"batches_an_epoch": 5, "steps_an_epoch": 5, "steps": 20, "epochs": 4.0}
    assert document["disk"]["checkpoint"] == document["memory"]["checkpoint"]
    component = next(one for one in document["files"] if one["name"] == "unet")
    assert component["part"] == "denoiser"
    assert component["parameters"] == document["parts"][0]["parameters"]
    assert component["types"] == ["F32"]


@pytest.mark.parametrize(
    ("optimizer", "words"),
    [("adamw", "two moments"), ("adafactor", "second moments by row and column")],
)
def test_optimizer_state_is_named_as_in_the_optimizer(optimizer: str, words: str, quick: Path) -> None:
    page = " ".join(" ".join(_check_page.page(checked(f"optim.optimizer.kind={optimizer}"))).split())
    assert words in page
    assert "Exporting holds one tensor at a time" in page
