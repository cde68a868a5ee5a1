"""Messages before the first step name everything that is omitted or changed."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from mezzotint.runtimes.base import Launch
from mezzotint.settings.reading.read import read_text
from mezzotint.tasks.train import announce


def line(text: str, word: str) -> str:
    return next(row for row in text.splitlines() if row.startswith(f"  {word} "))


def test_omitted_skipped_and_changed_samples_are_counted(world: Any, capsys: Any) -> None:
    Image.new("RGB", (64, 64)).save(world.images / "uncaptioned.png")
    Image.new("RGB", (64, 64)).save(world.images / "wordless.png")
    Image.new("RGB", (8, 8)).save(world.images / "small.png")
    (world.images / "wordless.txt").write_text("\n")
    (world.images / "small.txt").write_text("a small one")
    (world.images / "broken.png").write_bytes(b"\x89PNG")
    (world.images / "broken.txt").write_text("a broken one")
    (world.images / "notes.md").write_text("")
    assert world.train("run", run__steps=1, data__captions__missing="skip") == 0
    said = capsys.readouterr().out
    for words in (
        "1 sample with an empty caption: wordless.png;",
        "1 image smaller than its bucket and enlarged,",
        "1 file left out as the recipe asks: uncaptioned.png: no caption;",
        "1 file skipped, which cannot be used: broken.png:",
        "1 file of other kinds not read: .md (1);",
    ):
        assert words in said


def test_warmup_longer_than_the_run_is_noted(world: Any, capsys: Any) -> None:
    assert world.train("long", run__steps=2, optim__schedule__warmup_steps=2) == 0
    assert "stays below its peak" in line(capsys.readouterr().out, "update")
    assert world.train("short", run__steps=2, optim__schedule__warmup_steps=1) == 0
    assert "stays below its peak" not in line(capsys.readouterr().out, "update")


def test_clip_skip_flips_and_timestep_bias_are_named(world: Any, capsys: Any) -> None:
    bias = {"strategy": "range", "multiplier": 3, "begin": 100, "end": 400}
    unusual: dict[str, Any] = {f"objective__timestep_bias__{name}": value for name, value in bias.items()}
    assert world.train("one", run__steps=1, data__flip=0.25, model__clip_skip=1, **unusual) == 0
    said = capsys.readouterr().out
    assert "without 1 last layer of its text encoder (clip skip)" in line(said, "model")
    assert "timestep bias range (100 to 399, 3 times as often)" in line(said, "objective")
    assert line(said, "data").endswith("; flipped with probability 0.25")
    assert world.train("two", run__steps=1, data__flip=0) == 0
    said = capsys.readouterr().out
    assert not [word for word in ("clip skip", "timestep bias", "flipped") if word in said]


def test_end_of_a_run_prints_model_and_next_commands(finished_run: tuple[Path, list[str], str]) -> None:
    root, _, said = finished_run
    first, second = [row for row in said.splitlines() if row.startswith(("  model        ", "  or "))]
    assert first.endswith("step-00000001-ema (averaged weights, usually the better ones)")
    assert second.endswith("step-00000001 (the weights of the last step)")
    assert said.splitlines()[-1] == "generate images with: mezzotint sample run --prompt='…'"
    assert "steps         1, the last in epoch 1\n" in (root / "run" / "logs" / "report.txt").read_text()


@pytest.mark.parametrize(
    ("settings", "more"),
    [
        (["run.steps=null", "run.epochs=2.5"], "3 epochs"),
        (["run.steps=null", "run.epochs=2.5", "run.extend=1 epoch"], "2 epochs"),
        (["run.steps=7", "run.extend=2 epochs"], "4 epochs"),
        (["run.steps=7"], "7 steps"),
        (["run.steps=1"], "1 step"),
        (["run.steps=null", "run.epochs=1"], "1 epoch"),
        (["run.steps=1234567"], "1234567 steps"),
    ],
)
def test_suggested_extension_uses_the_unit_of_the_run(settings: list[str], more: str) -> None:
    reading = read_text("schema: 1", overrides=settings)
    line = announce.extension_line(reading, reading.recipe, ["recipe.yaml", *settings], Launch())
    assert line.endswith(f"'run.extend={more}'")
    longer = read_text("schema: 1", overrides=shlex.split(line)[-1:]).recipe.run.extend
    assert longer is not None
    assert longer.count == int(more.split()[0]), "what is printed is read as it stands in a shell"
    assert line.count("run.extend=") == 1
