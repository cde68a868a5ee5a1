"""Prompts are cleaned like captions; syntax of other programs is reported once."""

from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image

from mezzotint.cli import main
from mezzotint.sampling import image_files
from mezzotint.tasks.prompts import cleaning
from mezzotint.tasks.sample import sample as verb

Captured = pytest.CaptureFixture[str]
QUICK = ("model.family=wan", "model.weights=random", "run.device=cpu", "--size=32x32", "--steps=2", "--guidance=2")


@pytest.mark.parametrize(
    ("prompts", "shown"),
    [
        (["a {red|blue} fox"], "{red|blue}"),
        (["a (fox:1.4)", "a (fox:1.4), (hare: .5)"], "(fox:1.4), (hare: .5)"),
        (["<lora:fox:1> a __colour__ fox"], "<lora:fox:1>, __colour__"),
        (["{a|b} {c|d} {e|f} {g|h}"], "{a|b}, {c|d}, {e|f} and 1 more"),
    ],
)
def test_foreign_prompt_syntax_is_reported_once(prompts: list[str], shown: str) -> None:
    assert cleaning.sign_notes(prompts) == [f"prompts are read as plain text: {shown} has no effect"]


@pytest.mark.parametrize("prompt", ["a fox (in snow)", "16:9 {wide}", "(portrait: a fox)", "snake_case"])
def test_plain_prompts_cause_no_message(prompt: str) -> None:
    assert cleaning.sign_notes([prompt]) == []


def test_sample_reports_foreign_syntax_and_known_tokens(here: Path, capsys: Captured) -> None:
    line = ["sample", "mezzotint-mini", "--prompt=a {red|blue} star", "--negative=(x:2)", "--size=16", "--steps=1"]
    assert main(line) == 0
    said = capsys.readouterr().out
    assert said.count("prompts are read as plain text") == 1
    assert "mezzotint-mini knows coloured shapes at given positions" in said


def test_prompts_are_cleaned_like_captions(tmp_path: Path) -> None:
    folder = tmp_path / "clean"
    words = ["--prompt=A <b>RED</b> Ball", "--negative=BAD", "data.captions.clean=true", "--frames=1"]
    assert verb.run(["tiny-wan", f"--out={folder}", *QUICK, *words]) == 0
    with Image.open(next(folder.glob("*-seed*.png"))) as image:
        facts = image_files.read_record(image)
    assert (facts["prompt"], facts["negative_prompt"]) == ("a red ball", "bad")
