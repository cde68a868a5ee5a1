"""The verb `sample`: what it draws from, that every picture says how it was drawn and can be drawn again from that, and
that nothing is written over."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from mezzotint import __version__
from mezzotint.cli import main
from mezzotint.errors import CheckpointError, MezzotintError, RecipeError
from mezzotint.families.sd import Family
from mezzotint.recipe.sections.model import ModelSettings
from mezzotint.recipe.sections.sample import SampleSettings
from mezzotint.sampling import grids, pictures
from mezzotint.sampling.prompt_file import Line, read_line
from mezzotint.sampling.sample import Request, Sampling, sample
from mezzotint.shapes import Size
from mezzotint.tasks.sample import _model
from mezzotint.tasks.sample import sample as verb
from mezzotint.tasks.sample._args import parse

FOLDER = Path(__file__).parents[1] / "parity" / "data" / "diffusers" / "tiny_sd"
QUICK = ("--size=32x32", "--steps=2", "--guidance=1", "run.device=cpu")


def drawn(out: Path) -> dict[str, Any]:
    """Pixels and text of every picture of a folder by name, contact sheets apart."""
    found = {}
    for path in sorted(out.glob("*.png")):
        if not path.name.startswith("contact"):
            with Image.open(path) as image:
                found[path.name] = (np.asarray(image), pictures.told_by(image))
    return found


def draw(out: Path, *words: str, place: Path | str = FOLDER) -> dict[str, Any]:
    assert verb.run([str(place), *QUICK, f"--out={out}", *words]) == 0
    return drawn(out)


# --- what a picture says --------------------------------------------------------------------------------------------


def test_a_picture_says_how_it_was_drawn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    words = ("--prompt=ein Fuß ☃", "--negative=dark", "--seed=3", "--solver=euler", "--rescale=0.5", "--guidance=2.5")
    assert verb.run([str(FOLDER), "--size=48x32", "--steps=2", f"--out={out}", *words]) == 0
    ((pixels, told),) = drawn(out).values()
    assert pixels.shape == (32, 48, 3)
    fingerprint = told.pop("model")
    assert told == {
        "prompt": "ein Fuß ☃", "negative_prompt": "dark", "size": "48x32", "seed": "3", "index": "0", "steps": "2",
        "guidance": "2.5", "guidance_rescale": "0.5", "solver": "euler", "spacing": "auto", "mezzotint": __version__,
        "model_name": "tiny_sd", "family": "sd",
    }  # fmt: skip
    assert len(bytes.fromhex(fingerprint)) == 32
    said = capsys.readouterr().out
    assert f"1 picture in {out}; contact sheet: {out / 'contact.png'}" in said
    assert (out / "contact.png").is_file()


def test_a_picture_can_be_drawn_again_from_what_it_says(tmp_path: Path) -> None:
    pictures = draw(
        tmp_path / "all", "--prompt=a fox", "a hare", "a hen", "--seed=1,2", "--solver=euler-a", "--batch=5"
    )
    assert len(pictures) == 6
    pixels, told = pictures["002-1-seed2.png"]
    again = draw(
        tmp_path / "one", f"--prompt={told['prompt']}", f"--seed={told['seed']}", f"--index={told['index']}",
        f"--solver={told['solver']}",
    )  # fmt: skip
    ((once_more, said),) = again.values()
    assert said == told
    # the company in the batch changes the order of sums, and nothing else
    assert np.abs(once_more.astype(int) - pixels.astype(int)).max() <= 1
    assert len({p.tobytes() for p, _ in pictures.values()}) == 6


def test_the_verb_draws_what_the_library_call_draws(tmp_path: Path) -> None:
    ((pixels, _),) = draw(tmp_path, "--prompt=a red circle", "--seed=5").values()
    family = Family.of(ModelSettings(path=FOLDER))
    settings = SampleSettings(steps=2, guidance=(1.0,), solver="ddim")
    how = Sampling(family.schedule, family.prediction, "cpu", settings)
    (picture,) = sample(family, [Request("a red circle", Size(32, 32), seed=5)], how)
    assert np.array_equal(picture.pixels, pixels)


def test_sizes_and_seeds_are_columns_and_prompts_are_rows(tmp_path: Path) -> None:
    out = tmp_path / "out"
    words = ["--prompt", "a", "b", "--size", "32x32,32x48", "--seed", "1,-2", "--steps", "1", "--guidance", "1"]
    assert verb.run([str(FOLDER), *words, "--out", str(out)]) == 0
    sizes = {(name[:5], told["seed"]): told["size"] for name, (_, told) in drawn(out).items()}
    assert sizes == {
        (f"00{row}-{2 * column + place}", seed): size
        for row in (0, 1)
        for column, size in enumerate(("32x32", "32x48"))
        for place, seed in enumerate(("1", "-2"))
    }


def test_a_file_of_prompts_may_say_of_each_line_how_it_is_drawn(tmp_path: Path) -> None:
    file = tmp_path / "prompts.txt"
    file.write_text("﻿# mine\na fox --w 48 --h 40 --d 7 --s 1 --l 3 --n dark, ugly\n\na hare -- running\n", "utf-8")
    found = draw(tmp_path / "out", f"--file={file}", "--seed=2", "--negative=grey")
    told = [text for _, text in found.values()]
    keys = ("prompt", "negative_prompt", "size", "seed", "index", "steps", "guidance")
    assert [[text[key] for key in keys] for text in told] == [
        ["a fox", "dark, ugly", "48x40", "7", "0", "1", "3.0"],
        ["a hare -- running", "grey", "32x32", "2", "1", "2", "1.0"],
    ]
    alone = tmp_path / "alone.txt"
    alone.write_text("a hen\na fox --w 48 --h 40 --d 7 --s 1 --l 3 --n dark, ugly\n")
    moved = draw(tmp_path / "moved", f"--file={alone}", "--seed=2")["001-0-seed7.png"]
    assert np.array_equal(moved[0], found["000-0-seed7.png"][0]), "a line with a seed of its own is at home anywhere"


def test_a_json_file_says_what_holds_for_all_and_for_each_and_switches_count_more(tmp_path: Path) -> None:
    file = tmp_path / "prompts.json"
    hen = {"prompt": "a hen", "size": [48, 40], "cfgs": [1, 2], "seed": -1, "scheduler": "ddim"}
    samples = [{"prompt": "a fox"}, hen]
    said = {"cfgs": 3, "num_inference_steps": 9, "scheduler": "euler", "negative_prompt": "grey", "size": [64, 64]}
    file.write_text(json.dumps(said | {"samples": samples}))
    found = draw(tmp_path / "out", f"--file={file}", "--seed=4")
    keys = ("prompt", "negative_prompt", "size", "steps", "guidance", "solver")
    assert [[told[key] for key in keys] for _, told in found.values()] == [
        ["a fox", "grey", "32x32", "2", "1.0", "euler"],
        ["a hen", "grey", "48x40", "2", "1.0", "ddim"],
        ["a hen", "grey", "48x40", "2", "2.0", "ddim"],
    ]
    assert [name[:6] for name in found] == ["000-0-", "001-0-", "001-1-"]
    seeds = [told["seed"] for _, told in found.values()]
    assert seeds[0] == "4"
    assert seeds[1] == seeds[2]
    assert 0 <= int(seeds[1]) < 2**31
    again = draw(tmp_path / "again", f"--file={file}")
    assert {told["seed"] for _, told in again.values()}.isdisjoint(seeds)
    file.write_text(json.dumps({"samples": [{"random_caption": True}]}))
    with pytest.raises(RecipeError, match="during training alone"):
        draw(tmp_path / "none", f"--file={file}")


def test_a_recipes_own_file_is_drawn_where_no_prompt_is_given(tmp_path: Path) -> None:
    file = tmp_path / "p.json"
    file.write_text(json.dumps({"scheduler": "euler", "steps": 9, "samples": [{"prompt": "a fox"}]}))
    own = f"sample.file={file}"
    ((_, told),) = draw(tmp_path / "own", own).values()
    assert (told["prompt"], told["solver"], told["steps"]) == ("a fox", "euler", "2"), "--steps=2 counts more"
    ((_, told),) = draw(tmp_path / "other", own, "--prompt=a hen").values()
    assert (told["prompt"], told["solver"]) == ("a hen", "ddim")


def test_more_than_one_sheet_is_made_where_one_would_be_too_large(tmp_path: Path) -> None:
    words = ["--size=32x32", "--steps=1", "--guidance=1", "--batch=25", f"--out={tmp_path}"]
    assert verb.run([str(FOLDER), *words, "--prompt", *(f"number {n}" for n in range(25))]) == 0
    assert sorted(p.name for p in tmp_path.glob("contact*")) == ["contact-2.png", "contact.png"]
    other = tmp_path / "other"
    other.mkdir()
    (other / "contact-2.png").write_text("mine")
    with pytest.raises(RecipeError, match=r"contact-2\.png: is there already and stays") as caught:
        verb.run([str(FOLDER), *words[:-1], f"--out={other}", "--prompt", *(f"number {n}" for n in range(25))])
    assert caught.value.code == "E1071"
    assert [(p.name, p.read_text()) for p in other.iterdir()] == [("contact-2.png", "mine")]


def test_words_that_do_not_fit_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    draw(tmp_path, "--prompt=" + "circle " * 90)
    assert "tokens of 'circle circle" in capsys.readouterr().out


# --- what is drawn from ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def trained(shared_world: Any) -> Any:
    """A world with a run of six steps, an average and two checkpoints in it."""
    settings = {"run__steps": 6, "optim__ema__rule": "constant", "optim__ema__decay": 0.5, "optim__lr": 0.01}
    assert shared_world.train("run", **settings, sample__prompts=["a red circle"], sample__seed=9) == 0
    return shared_world


def of_run(world: Any, out: Path, *words: str, place: str = "run") -> tuple[Any, dict[str, str]]:
    ((pixels, told),) = draw(out, *words, place=world.root / place).values()
    return pixels, told


def test_a_run_draws_from_its_newest_checkpoint_what_its_export_draws(trained: Any, tmp_path: Path) -> None:
    raw, told = of_run(trained, tmp_path / "raw", "--weights=raw")
    average, said = of_run(trained, tmp_path / "shadow", "--weights=shadow")
    assert (told["weights"], told["training_step"], told["prompt"], told["seed"]) == ("raw", "6", "a red circle", "9")
    assert (said["weights"], said["training_step"]) == ("shadow", "6")
    assert not np.array_equal(raw, average)
    assert told["model"] != said["model"]
    again, _ = of_run(trained, tmp_path / "default")
    assert np.array_equal(again, average), "the average where there is one"
    for name, pixels in (("step-00000006", raw), ("step-00000006-ema", average)):
        export = trained.root / "run" / "exports" / name
        words = ("--prompt=a red circle", "--seed=9")
        ((exported, _),) = draw(tmp_path / name, *words, place=export).values()
        assert np.array_equal(exported, pixels), name


def test_a_checkpoint_of_a_run_can_be_named(trained: Any, tmp_path: Path) -> None:
    early, told = of_run(trained, tmp_path / "3", "--weights=raw", place="run/checkpoints/step-00000003")
    late, _ = of_run(trained, tmp_path / "6", "--weights=raw")
    assert told["training_step"] == "3"
    assert told["model_name"] == "run-step-00000003"
    assert not np.array_equal(early, late)


def test_a_recipe_stands_for_its_run_or_for_the_model_it_begins_with(
    trained: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = trained.words("run", sample__prompts=["a red circle"], sample__seed=9)
    assert verb.run([*words, *QUICK, f"--out={tmp_path / 'a'}"]) == 0
    ((pixels, _),) = drawn(tmp_path / "a").values()
    assert np.array_equal(pixels, of_run(trained, tmp_path / "b")[0])
    assert "nothing is trained yet" not in capsys.readouterr().out
    words = trained.words("untrained", sample__prompts=["a red circle"], sample__seed=9)
    assert verb.run([*words, *QUICK, f"--out={tmp_path / 'c'}"]) == 0
    ((before, told),) = drawn(tmp_path / "c").values()
    assert "nothing is trained yet" in capsys.readouterr().out
    assert "training_step" not in told
    assert not np.array_equal(before, pixels)


def test_a_model_is_drawn_at_the_size_it_was_made_for(tmp_path: Path) -> None:
    assert verb.run([str(FOLDER), "--prompt=a", "--steps=1", f"--out={tmp_path / 'x'}"]) == 0
    ((pixels, _),) = drawn(tmp_path / "x").values()
    model = Family.of(ModelSettings(path=FOLDER))
    side = model.parts()["denoiser"].config.sample_size * model.grid.pixels  # type: ignore[union-attr]
    assert pixels.shape == (side, side, 3)


def test_zero_terminal_snr_of_the_recipe_is_sampled_as_it_was_trained(trained: Any, tmp_path: Path) -> None:
    out = tmp_path / "out"
    given = {
        "objective__zero_terminal_snr": True,
        "model__prediction": "v",
        "run__steps": 1,
        "optim__ema__rule": "none",
    }
    assert trained.train("zero", **given) == 0
    seen: list[float] = []
    opened = _model.open_model(_model.find(str(trained.root / "zero"), []), None)
    opened.family.parts()["denoiser"].register_forward_pre_hook(lambda _, inputs: seen.append(float(inputs[1].max())))
    request = Request("a", Size(32, 32))
    assert opened.objective.schedule.zero_terminal
    settings = SampleSettings(steps=2, guidance=(1.0,), solver="ddim")
    list(
        sample(
            opened.family,
            [request],
            Sampling(opened.objective.schedule, opened.objective.parameterization, "cpu", settings),
        )
    )
    assert seen[0] == 999
    with pytest.raises(RecipeError) as caught:
        verb.run([str(trained.root / "zero"), "--prompt=a", "--solver=heun", *QUICK, f"--out={out}"])
    assert caught.value.code == "E1070"


# --- what is refused ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ([], "E1012", "nothing is named to draw from"),
        (["a", "b"], "E1012", "'b' stands beside 'a'"),
        (["a", "--promt=x"], "E1012", "mezzotint sample has no switch --promt; did you mean --prompt?"),
        (["a", "--prompt"], "E1012", "--prompt needs a value"),
        (["a", "--size=5by4"], "E1012", "512 for a square, or sdxl-1.46, got '5by4'"),
        (["a", "--seed=1,x"], "E1012", "--seed is a whole number, got 'x'"),
        (["a", "--seed=1", "--seed=2"], "E1012", "--seed is given twice"),
        (["a", "--weights=old"], "E1012", "--weights is raw, or ema for the average, got 'old'"),
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
def test_what_cannot_be_drawn_is_told_with_a_remedy(words: list[str], code: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(MezzotintError) as caught:
        verb.run([*words, f"--out={tmp_path / 'out'}"])
    assert caught.value.code == code
    assert said in str(caught.value)
    assert not (tmp_path / "out").exists()


def test_an_average_that_was_not_kept_is_named(trained: Any, tmp_path: Path) -> None:
    assert trained.train("plain", run__steps=1, optim__ema__rule="none") == 0
    with pytest.raises(CheckpointError, match=r"trained without optim\.ema") as caught:
        verb.run([str(trained.root / "plain"), "--prompt=a", "--weights=shadow", f"--out={tmp_path / 'out'}"])
    assert caught.value.code == "E1075"


def test_a_checkpoint_of_another_model_is_refused(trained: Any, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="trained tensors are not the model's") as caught:
        verb.run([str(trained.root / "run"), "--prompt=a", f"model.path={FOLDER}", "model.weights=files"])
    assert caught.value.code == "E1502"


def test_nothing_is_written_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "000-0-seed0.png").write_text("mine")
    with pytest.raises(RecipeError, match="stays as it is") as caught:
        draw(tmp_path, "--prompt=a")
    assert caught.value.code == "E1071"
    assert (tmp_path / "000-0-seed0.png").read_text() == "mine"
    assert not (tmp_path / "contact.png").exists()
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        assert verb.run([str(FOLDER), "--prompt=a", *QUICK]) == 0
    assert sorted(p.name for p in (tmp_path / "samples").iterdir()) == ["tiny_sd", "tiny_sd-2"]


SHORT = ("--steps=1", "--guidance=1", "run.device=cpu")


def test_a_line_with_a_size_and_seed_of_its_own_is_drawn_once_and_the_sheet_says_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sheets: list[dict[str, Any]] = []
    made = grids.sheet

    def watched(cells: Any, **said: Any) -> Image.Image:
        sheets.append({"cells": [[cell is not None for cell in row] for row in cells], **said})
        return made(cells, **said)

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


def test_seed_minus_1_is_a_new_one_which_is_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    seeds = []
    for number, words in enumerate((["--seed=-1"], ["--seed=-1"], ["sample.seed=-1"])):
        assert (
            verb.run(
                [str(FOLDER), "--prompt=a", "b", "--size=32x32", *SHORT, f"--out={tmp_path / str(number)}", *words]
            )
            == 0
        )
        told = [told for _, told in drawn(tmp_path / str(number)).values()]
        assert told[0]["seed"] == told[1]["seed"], "both prompts are drawn with it"
        assert f"seed -1: a new one, {told[0]['seed']}" in capsys.readouterr().out
        seeds.append(int(told[0]["seed"]))
    assert len(set(seeds)) == 3
    assert min(seeds) >= 0


def test_what_ctrl_c_ends_has_a_contact_sheet_of_what_was_drawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    written = pictures.file
    count = iter(range(9))

    def interrupted(*given: Any) -> bytes:
        if next(count) == 2:
            raise KeyboardInterrupt
        return written(*given)

    monkeypatch.setattr(pictures, "file", interrupted)
    out = tmp_path / "out"
    assert main(["sample", str(FOLDER), "--prompt=a", "b", "c", "--size=32x32", *SHORT, f"--out={out}"]) == 130
    assert sorted(drawn(out)) == ["000-0-seed0.png", "001-0-seed0.png"]
    assert f"interrupted: 2 of 3 pictures in {out}; contact sheet: {out / 'contact.png'}" in capsys.readouterr().out
    with Image.open(out / "contact.png") as sheet:
        assert sheet.height > 2 * 160, "two rows"


def test_the_picture_that_was_begun_with_is_named_with_its_path_and_content(tmp_path: Path) -> None:
    begin = tmp_path / "deep" / "begin.png"
    begin.parent.mkdir()
    Image.new("RGB", (40, 40), "red").save(begin)
    words = [f"sample.image={begin}", "sample.strength=0.5", "--spacing=stability"]
    ((_, told),) = draw(tmp_path / "out", "--prompt=a", *words).values()
    assert told["image"] == str(begin)
    assert told["image_sha256"] == hashlib.sha256(begin.read_bytes()).hexdigest()
    assert (told["strength"], told["data.resize"]) == ("0.5", "lanczos")


def test_what_is_wrong_is_said_before_torch_is_loaded(tmp_path: Path) -> None:
    (tmp_path / "contact.png").write_text("mine")
    file = tmp_path / "p.txt"
    file.write_text("fine\na fox --w 64 --h 60\n")
    lines = {
        "--size=65x64": "a picture of 65x64 cannot be drawn: sides are multiples of 8; 64x64 is near",
        "--solver=eular": "did you mean euler?",
        f"--out={tmp_path}": f"{tmp_path / 'contact.png'}: is there already",
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


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("a fox --h 60", "--h is 60; write a multiple of 8 of at least 8"),
        ("a fox --ar 16:9", "--ar is no option of a prompt; there are --n negative prompt"),
        ("a fox --w", "--w is written once, with its value behind it"),
        ("a fox --w 64 --w 32", "--w is written once"),
        ("a fox --w 0", "--w is 0; write a multiple of 8 of at least 8"),
        ("a fox --s two", '--s is "two"; write a whole number of at least 1'),
        ("a fox --l -1", "--l is -1; write a number from 0 to"),
    ],
)
def test_a_line_that_cannot_be_read_is_named(line: str, said: str, tmp_path: Path) -> None:
    file = tmp_path / "prompts.txt"
    file.write_text(f"fine\n{line}\n")
    with pytest.raises(RecipeError) as caught:
        parse(["m", f"--file={file}"])
    assert caught.value.code == "E1073"
    assert f"{file} line 2: {said}" in str(caught.value)


def test_lines_are_read_as_they_are_written() -> None:
    assert read_line("a fox, 3--4 years -- old", "x") == Line("a fox, 3--4 years -- old")
    assert read_line("--d 5", "x") == Line("", seed=5)
    assert read_line("a --n", "x") == Line("a", negative="")


def test_a_file_without_prompts_or_of_other_bytes_is_refused(tmp_path: Path) -> None:
    for content, said in ((b"# nothing\n\n", "has no prompt"), (b"\xff\xfe\x00", "not UTF-8")):
        (tmp_path / "p.txt").write_bytes(content)
        with pytest.raises(RecipeError, match=said):
            parse(["m", f"--file={tmp_path / 'p.txt'}"])


def test_settings_and_prompts_are_told_apart() -> None:
    asked = parse(["m", "--prompt", "x=1 is a formula", "run.device=cpu", "a: b", "--steps", "3", "sample.seed=4"])
    assert [line.prompt for line in asked.lines] == ["x=1 is a formula", "a: b"]
    assert asked.overrides == ("run.device=cpu", "sample.seed=4", "sample.steps=3")


# --- the command line -----------------------------------------------------------------------------------------------


def test_a_mistyped_line_is_answered_without_torch() -> None:
    code = (
        "import sys\nfrom mezzotint.cli import main\nassert main(['sample', 'x', '--promt=a']) == 2\n"
        "assert not {'torch', 'diffusers'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_memory_that_does_not_suffice_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: Any, **__: Any) -> Any:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 1 GiB")

    monkeypatch.setattr("mezzotint.tasks.sample._drawing.drawn", full)
    assert main(["sample", str(FOLDER), "--prompt=a", f"--out={tmp_path}"]) == 5
    assert "write --batch=1" in capsys.readouterr().err


def test_the_denoiser_alone_computes_in_the_smaller_type(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, bool] = {}

    def noting(name: str) -> None:
        plain = getattr(Family, name)

        def run(self: Family, *given: Any) -> Any:
            seen[name] = torch.is_autocast_enabled("cpu")
            return plain(self, *given)

        monkeypatch.setattr(Family, name, run)

    for name in ("encode_text", "predict", "encode_media", "decode_media"):
        noting(name)
    picture = tmp_path / "begin.png"
    Image.new("RGB", (32, 32), "red").save(picture)
    draw(tmp_path / "out", "--prompt=a fox", "run.precision=bf16", f"sample.image={picture}", "--solver=euler")
    # an autoencoder that is to be float32 would overflow under the denoiser's autocast, as SDXL's does in fp16
    assert seen == {"encode_text": False, "predict": True, "encode_media": False, "decode_media": False}
