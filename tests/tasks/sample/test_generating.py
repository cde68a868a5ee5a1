"""Generated images in a folder, and their contact sheets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from mezzotint import __version__
from mezzotint.cli import main
from mezzotint.errors import RecipeError
from mezzotint.sampling import image_files
from mezzotint.tasks.sample import sample as verb
from support.sample_command import FOLDER, draw, drawn

SHORT = ("--steps=1", "--guidance=1", "run.device=cpu")


def test_image_metadata_records_its_settings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    words = ("--prompt=ein Fuß ☃", "--negative=dark", "--seed=3", "--solver=euler", "--rescale=0.5", "--guidance=2.5")
    assert verb.run([str(FOLDER), "--size=48x32", "--steps=2", f"--out={out}", *words]) == 0
    ((pixels, facts),) = drawn(out).values()
    assert pixels.shape == (32, 48, 3)
    fingerprint = facts.pop("model")
    assert facts == {
        "prompt": "ein Fuß ☃", "negative_prompt": "dark", "size": "48x32", "seed": "3", "index": "0", "steps": "2",
        "guidance": "2.5", "guidance_rescale": "0.5", "solver": "euler", "spacing": "auto", "mezzotint": __version__,
        "model_name": "tiny_sd", "family": "sd",
    }  # fmt: skip
    assert len(bytes.fromhex(fingerprint)) == 32
    said = capsys.readouterr().out
    assert f"1 image in {out}; contact sheet: {out / 'contact.png'}" in said
    assert (out / "contact.png").is_file()


def test_image_can_be_reproduced_from_its_metadata(tmp_path: Path) -> None:
    images = draw(
        tmp_path / "all", "--prompt", "a fox", "a hare", "a hen", "--seed=1,2", "--solver=euler-a", "--batch=5"
    )
    assert len(images) == 6
    pixels, facts = images["002-1-seed2.png"]
    again = draw(
        tmp_path / "one", f"--prompt={facts['prompt']}", f"--seed={facts['seed']}", f"--index={facts['index']}",
        f"--solver={facts['solver']}",
    )  # fmt: skip
    ((once_more, said),) = again.values()
    assert said == facts
    # other samples of the batch change the order of sums only
    assert np.abs(once_more.astype(int) - pixels.astype(int)).max() <= 1
    assert len({p.tobytes() for p, _ in images.values()}) == 6


def test_large_contact_sheets_are_split(tmp_path: Path) -> None:
    words = ["--size=32x32", "--steps=1", "--guidance=1", "--batch=25", f"--out={tmp_path}"]
    assert verb.run([str(FOLDER), *words, "--prompt", *(f"number {n}" for n in range(25))]) == 0
    assert sorted(p.name for p in tmp_path.glob("contact*")) == ["contact-2.png", "contact.png"]
    other = tmp_path / "other"
    other.mkdir()
    (other / "contact-2.png").write_text("mine")
    with pytest.raises(RecipeError, match=r"contact-2\.png: already exists and was not") as caught:
        verb.run([str(FOLDER), *words[:-1], f"--out={other}", "--prompt", *(f"number {n}" for n in range(25))])
    assert caught.value.code == "E1071"
    assert [(p.name, p.read_text()) for p in other.iterdir()] == [("contact-2.png", "mine")]


def test_truncated_prompts_are_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    draw(tmp_path, "--prompt=" + "circle " * 90)
    assert "tokens of 'circle circle" in capsys.readouterr().out


def test_interrupted_sampling_writes_contact_sheet_of_finished_images(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    written = image_files.file
    count = iter(range(9))

    def interrupted(*arguments: Any) -> bytes:
        if next(count) == 2:
            raise KeyboardInterrupt
        return written(*arguments)

    monkeypatch.setattr(image_files, "file", interrupted)
    out = tmp_path / "out"
    assert main(["sample", str(FOLDER), "--prompt", "a", "b", "c", "--size=32x32", *SHORT, f"--out={out}"]) == 130
    assert sorted(drawn(out)) == ["000-0-seed0.png", "001-0-seed0.png"]
    assert f"interrupted: 2 of 3 images in {out}; contact sheet: {out / 'contact.png'}" in capsys.readouterr().out
    with Image.open(out / "contact.png") as sheet:
        assert sheet.height > 2 * 160, "two rows"


def test_out_of_memory_while_sampling_is_explained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: Any, **__: Any) -> Any:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 1 GiB")

    monkeypatch.setattr("mezzotint.tasks.sample._generating.generate_images", full)
    assert main(["sample", str(FOLDER), "--prompt=a", f"--out={tmp_path}"]) == 5
    assert "write --batch=1" in capsys.readouterr().err
