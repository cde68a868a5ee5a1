"""The plan of `sample`: rows, columns, seeds, names; errors are reported before importing torch."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from mezzotint.errors import RecipeError
from mezzotint.sampling import grids
from mezzotint.tasks.sample import sample as verb
from support.sample_command import FOLDER, QUICK, draw, drawn

SHORT = ("--steps=1", "--guidance=1", "run.device=cpu")


def test_sheet_has_columns_of_sizes_and_seeds_and_rows_of_prompts(tmp_path: Path) -> None:
    out = tmp_path / "out"
    words = ["--prompt", "a", "b", "--size", "32x32,32x48", "--seed", "1,-2", "--steps", "1", "--guidance", "1"]
    assert verb.run([str(FOLDER), *words, "--out", str(out)]) == 0
    sizes = {(name[:5], facts["seed"]): facts["size"] for name, (_, facts) in drawn(out).items()}
    assert sizes == {
        (f"00{row}-{2 * column + place}", seed): size
        for row in (0, 1)
        for column, size in enumerate(("32x32", "32x48"))
        for place, seed in enumerate(("1", "-2"))
    }


def test_existing_images_are_not_overwritten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "000-0-seed0.png").write_text("mine")
    with pytest.raises(RecipeError, match="was not changed") as caught:
        draw(tmp_path, "--prompt=a")
    assert caught.value.code == "E1071"
    assert (tmp_path / "000-0-seed0.png").read_text() == "mine"
    assert not (tmp_path / "contact.png").exists()
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        assert verb.run([str(FOLDER), "--prompt=a", *QUICK]) == 0
    assert sorted(p.name for p in (tmp_path / "samples").iterdir()) == ["tiny_sd", "tiny_sd-2"]


def test_prompt_with_own_size_and_seed_is_generated_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sheets: list[dict[str, Any]] = []
    plain_sheet = grids.sheet

    def watched(cells: Any, **said: Any) -> Image.Image:
        sheets.append({"cells": [[cell is not None for cell in row] for row in cells], **said})
        return plain_sheet(cells, **said)

    monkeypatch.setattr(grids, "sheet", watched)
    file = tmp_path / "prompts.txt"
    file.write_text("a fox --w 32 --h 48 --d 7 --s 2 --n dark, ugly\na hare\n")
    words = [f"--file={file}", "--size=32x32,48x32", "--seed=1,2", *SHORT, f"--out={tmp_path / 'out'}"]
    assert verb.run([str(FOLDER), *words]) == 0
    assert sorted(drawn(tmp_path / "out")) == [
        "000-0-seed7.png", "001-0-seed1.png", "001-1-seed2.png", "001-2-seed1.png", "001-3-seed2.png",
    ]  # fmt: skip
    (sheet,) = sheets
    assert sheet["columns"] == ["32x32, seed 1", "32x32, seed 2", "48x32, seed 1", "48x32, seed 2"]
    assert sheet["cells"] == [[True, False, False, False], [True] * 4]
    assert sheet["notes"] == [["32x48, seed 7, 2 steps, not: dark, ugly", "", "", ""], [""] * 4]


def test_sample_seed_minus_1_is_new_and_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    seeds = []
    for number, words in enumerate((["--seed=-1"], ["--seed=-1"], ["sample.seed=-1"])):
        assert (
            verb.run(
                [str(FOLDER), "--prompt", "a", "b", "--size=32x32", *SHORT, f"--out={tmp_path / str(number)}", *words]
            )
            == 0
        )
        facts = [facts for _, facts in drawn(tmp_path / str(number)).values()]
        assert facts[0]["seed"] == facts[1]["seed"], "both prompts are drawn with it"
        assert f"seed -1: a new one, {facts[0]['seed']}" in capsys.readouterr().out
        seeds.append(int(facts[0]["seed"]))
    assert len(set(seeds)) == 3
    assert min(seeds) >= 0


def test_errors_are_reported_before_importing_torch(tmp_path: Path) -> None:
    (tmp_path / "contact.png").write_text("mine")
    file = tmp_path / "p.txt"
    file.write_text("fine\na fox --w 64 --h 60\n")
    lines = {
        "--size=65x64": "an image of 65x64 cannot be generated: its sides must be multiples of 8; 64x64 is near",
        "--solver=eular": "did you mean euler?",
        f"--out={tmp_path}": f"{tmp_path / 'contact.png'}: already exists",
        f"--file={file}": f"{file} line 2: --h is 60; write a multiple of 8 of at least 8",
    }
    code = (
        "import json, sys\nfrom mezzotint.cli import main\n"
        f"for word in {list(lines)!r}:\n"
        f"    assert main(['sample', {str(FOLDER)!r}, '--prompt=a', word]) == 2, word\n"
        "assert not {'torch', 'diffusers', 'transformers'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    for word, said in lines.items():
        assert said in done.stderr, word


def test_mistyped_command_is_answered_without_torch() -> None:
    code = (
        "import sys\nfrom mezzotint.cli import main\nassert main(['sample', 'x', '--promt=a']) == 2\n"
        "assert not {'torch', 'diffusers'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
