"""`mezzotint sample`: command lines, prompt files and recipes."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from mezzotint.errors import MezzotintError, RecipeError
from mezzotint.families.sd import Family
from mezzotint.sampling.requests import Request, Sampling
from mezzotint.sampling.sample import sample
from mezzotint.settings.sections.model import ModelSettings
from mezzotint.settings.sections.sample import SampleSettings
from mezzotint.shapes import Size
from mezzotint.tasks.sample import sample as verb
from mezzotint.weights.files import learned_tokens
from support.adapter_records import FILES
from support.sample_command import FOLDER, draw


def test_sample_command_and_library_generate_the_same_image(tmp_path: Path) -> None:
    ((pixels, _),) = draw(tmp_path, "--prompt=a red circle", "--seed=5").values()
    family = Family.of(ModelSettings(path=FOLDER))
    settings = SampleSettings(steps=2, guidance=(1.0,), solver="ddim")
    how = Sampling(family.schedule, family.prediction, "cpu", settings)
    (image,) = sample(family, [Request("a red circle", Size(32, 32), seed=5)], how)
    assert np.array_equal(image.pixels, pixels)


def test_prompt_file_may_set_options_per_line(tmp_path: Path) -> None:
    file = tmp_path / "prompts.txt"
    file.write_text("﻿# mine\na fox --w 48 --h 40 --d 7 --s 1 --l 3 --n dark, ugly\n\na hare -- running\n", "utf-8")
    images = draw(tmp_path / "out", f"--file={file}", "--seed=2", "--negative=grey")
    facts = [text for _, text in images.values()]
    keys = ("prompt", "negative_prompt", "size", "seed", "index", "steps", "guidance")
    assert [[text[key] for key in keys] for text in facts] == [
        ["a fox", "dark, ugly", "48x40", "7", "0", "1", "3.0"],
        ["a hare -- running", "grey", "32x32", "2", "1", "2", "1.0"],
    ]
    alone = tmp_path / "alone.txt"
    alone.write_text("a hen\na fox --w 48 --h 40 --d 7 --s 1 --l 3 --n dark, ugly\n")
    moved = draw(tmp_path / "moved", f"--file={alone}", "--seed=2")["001-0-seed7.png"]
    assert np.array_equal(moved[0], images["000-0-seed7.png"][0]), "position does not matter"


@pytest.mark.parametrize("steps", [2, 3])
def test_single_step_solver_prints_no_scheduler_message(
    steps: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For even and odd numbers of steps: messages of the library name its own settings."""
    heard: list[str] = []
    handler = logging.Handler()
    monkeypatch.setattr(handler, "emit", lambda record: heard.append(record.getMessage()))
    library = logging.getLogger("diffusers")
    library.addHandler(handler)
    try:
        words = [str(FOLDER), "--prompt=a fox", "--size=32x32", "run.device=cpu", f"--out={tmp_path / 'out'}"]
        assert verb.run([*words, "--solver=dpm++-single", f"--steps={steps}"]) == 0
    finally:
        library.removeHandler(handler)
    assert not [text for text in heard if "Changing scheduler" in text]


@pytest.mark.slow
def test_json_file_sets_shared_and_own_options_below_command_line(tmp_path: Path) -> None:
    file = tmp_path / "prompts.json"
    hen = {"prompt": "a hen", "size": [48, 40], "guidance": [1, 2], "seed": -1, "solver": "ddim"}
    samples = [{"prompt": "a fox"}, hen]
    said = {"guidance": 3, "steps": 9, "solver": "euler", "negative_prompt": "grey", "size": [64, 64]}
    file.write_text(json.dumps(said | {"samples": samples}))
    images = draw(tmp_path / "out", f"--file={file}", "--seed=4")
    keys = ("prompt", "negative_prompt", "size", "steps", "guidance", "solver")
    assert [[facts[key] for key in keys] for _, facts in images.values()] == [
        ["a fox", "grey", "32x32", "2", "1.0", "euler"],
        ["a hen", "grey", "48x40", "2", "1.0", "ddim"],
        ["a hen", "grey", "48x40", "2", "2.0", "ddim"],
    ]
    assert [name[:6] for name in images] == ["000-0-", "001-0-", "001-1-"]
    seeds = [facts["seed"] for _, facts in images.values()]
    assert seeds[0] == "4"
    assert seeds[1] == seeds[2]
    assert 0 <= int(seeds[1]) < 2**31
    again = draw(tmp_path / "again", f"--file={file}")
    assert {facts["seed"] for _, facts in again.values()}.isdisjoint(seeds)
    file.write_text(json.dumps({"samples": [{"random_caption": True}]}))
    with pytest.raises(RecipeError, match="only during training"):
        draw(tmp_path / "none", f"--file={file}")


def test_prompt_file_of_recipe_is_the_default(tmp_path: Path) -> None:
    file = tmp_path / "p.json"
    file.write_text(json.dumps({"solver": "euler", "steps": 9, "samples": [{"prompt": "a fox"}]}))
    own = f"sample.prompt_file={file}"
    ((_, facts),) = draw(tmp_path / "own", own).values()
    assert (facts["prompt"], facts["solver"], facts["steps"]) == ("a fox", "euler", "2"), "--steps=2 counts more"
    ((_, facts),) = draw(tmp_path / "other", own, "--prompt=a hen").values()
    assert (facts["prompt"], facts["solver"]) == ("a hen", "ddim")


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ([], "E1012", "no model is given"),
        (["a", "b"], "E1012", "got two models, 'a' and 'b'"),
        (["a", "--promt=x"], "E1012", "mezzotint sample has no option --promt; did you mean --prompt?"),
        (["a", "--prompt"], "E1012", "--prompt needs a value"),
        (["a", "--size=5by4"], "E1012", "512 for a square, or sdxl-1.46, got '5by4'"),
        (["a", "--seed=1,x"], "E1012", "--seed is a whole number, got 'x'"),
        (["a", "--seed=1", "--seed=2"], "E1012", "--seed is given twice"),
        (["a", "--weights=old"], "E1012", "--weights is raw, or ema for averaged weights, got 'old'"),
        (["nosuch", "--prompt=x"], "E1074", "nosuch is neither a model, nor a run folder, nor a recipe"),
        ([str(FOLDER.parent), "--prompt=x"], "E1074", "neither a model"),
        ([str(FOLDER)], "E1072", "write --prompt="),
        ([str(FOLDER), "--prompt=x", "--solver=eular"], "E1007", "did you mean euler?"),
        ([str(FOLDER), "--prompt=x", "--steps=0"], "E1007", "sample.steps"),
        ([str(FOLDER), "--prompt=x", "--size=30x32"], "E1007", "multiples of 8"),
        ([str(FOLDER), "--prompt=x", "--weights=ema"], "E1075", "is not a run"),
        ([str(FOLDER), "--prompt=x", "--file=nosuch.txt"], "E1073", "nosuch.txt: cannot be read"),
    ],
)
def test_impossible_requests_are_refused_with_a_remedy(words: list[str], code: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(MezzotintError) as caught:
        verb.run([*words, f"--out={tmp_path / 'out'}"])
    assert caught.value.code == code
    assert said in str(caught.value)
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
@pytest.mark.usefixtures("pickles_read_here")
def test_notes_on_an_adapter_are_printed_for_every_format(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    tensors = load_file(FILES / "sd_lora_text_r4.kohya.safetensors")
    plain = {name: tensor for name, tensor in tensors.items() if not name.endswith("alpha")}
    seen = []
    for name in ("fox.safetensors", "fox.pt"):
        (save_file if name.endswith("safetensors") else torch.save)(plain, tmp_path / name)
        drawn = draw(tmp_path / name.replace(".", "-"), "--prompt=a <wug>", f"--adapter={tmp_path / name}")
        said = capsys.readouterr().out
        assert f"{tmp_path / name}: 44 of 44 layers have no alpha" in said, name
        assert "<wug>" not in said
        pixels, facts = next(iter(drawn.values()))
        assert facts[f"adapter {name}"] == "1"
        seen.append(pixels)
    assert np.array_equal(*seen), "a pickle gives the same"
    learned_tokens.write(tmp_path, {"<wug>": {"text_encoder": torch.zeros(1, 32)}}, torch.float32, {"format": "pt"})
    draw(tmp_path / "out", "--prompt=a <wug>", "--prompt=a fox", f"--adapter={tmp_path / 'fox.safetensors'}")
    word = tmp_path / "embeddings" / "wug.safetensors"
    assert f"add --embedding='<wug>={word}'" in capsys.readouterr().out
    draw(
        tmp_path / "both", "--prompt=a <wug>", f"--adapter={tmp_path / 'fox.safetensors'}", f"--embedding=<wug>={word}"
    )
    assert "add --embedding" not in capsys.readouterr().out
