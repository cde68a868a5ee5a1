"""Common mistakes on the command line, and the suggested command."""

from __future__ import annotations

from pathlib import Path

import pytest

from mezzotint import errors
from mezzotint.cli import main
from mezzotint.tasks.reading import arguments
from mezzotint.tasks.reading.command_line import parse

Captured = pytest.CaptureFixture[str]
FOREIGN = ["--pretrained_model_name_or_path=x", "--train_data_dir=y"]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (["train", "mini", "--lr", "1e-4"], "no option --lr; write optim.lr=1e-4\n"),
        (["train", "--lr", "1e-4", "mini"], "no option --lr; write optim.lr=1e-4\n"),
        (["train", "mini", "--lr=1e-4"], "no option --lr; write optim.lr=1e-4\n"),
        (["train", "mini", "--data", "pics"], "no option --data; write data.path=pics\n"),
        (["train", "mini", "-o", "out"], "no option -o; write run.folder=out\n"),
        (["check", "mini", "--jsno"], "did you mean --json?"),
        (["check", "mini", "--zorp"], "`mezzotint check --help` lists its options"),
        (["resume", "runs/first"], "did you mean `mezzotint train runs/first`?"),
        (["generate", "runs/first", "--prompt=a fox"], "did you mean `mezzotint sample runs/first '--prompt=a fox'`?"),
        (["train", "mini", "--resume"], "no option --resume; a run resumes where it stopped; give only"),
        (["train", "mini", "run.name=a", "--resume=latest"], "no option --resume; a run resumes where"),
        (["train", "first"], "there is no recipe first; did you mean runs/first?"),
        (["train", "plain"], "or a run folder; for a folder of images write data.path=plain"),
        (
            ["train", "mini", "plain"],
            "E1008 is a folder, not key=value; write data.path=plain",
        ),
        (["train", "mini", "sample.size=32"], "sample.size  E1002 must be a list of 2, got 32; write it like [32, 32]"),
        (["train", "mini", "run.name=my run"], "has an invalid form, got 'my run'; the run's name: letters, digits"),
        (["train", "mini", "sample.number=5"], "`mezzotint explain sample` lists its settings"),
        (["merge", "a", "b", "--out", "c"], "merge has no option --out; write c as the last name, without an option"),
        (["convert", "a", "--to=c"], "convert has no option --to; write c as the last name, without an option"),
        (["verify", "runs/none"], "runs/none; name the folder of a run"),
        (["report", "runs/none"], "there is no folder runs/none; name a run or a data set"),
        (["report", "runs"], "runs contains runs and is not a run; name one of them, such as runs/first"),
        (["sample", "mezzotint-mni", "--prompt=a"], "in what ships); did you mean mezzotint-mini?"),
        (["sample", "a red star"], "a prompt is written mezzotint sample MODEL --prompt='a red star'\n"),
        (["doctor", "nope"], "there is no folder nope, and there is no recipe nope; `mezzotint ls` lists"),
        (["sample", "runs/frist", "--prompt=a"], "in what ships); did you mean runs/first?"),
        (["sample", "mezzotint-mini", "--prompt=a", "--out=a/red.png"], "got a/red.png; write --out=a/red\n"),
        (
            ["train", "nofile.yaml"],
            "there is no file nofile.yaml in the current folder; names without .yaml are shipped recipes;",
        ),
        (["train", "nofile"], "there is no recipe nofile; `mezzotint ls` lists the shipped recipes"),
        (["train", "mini", FOREIGN[0]], "no option --pretrained_model_name_or_path; write model.path=x\n"),
        (["check", "a.toml"], "line 3  file  E1004 this is TOML, not YAML; write settings as `optim:`"),
        (
            ["check", "windows.yaml"],
            "a backslash starts an escape sequence; write the value in single quotes: 'C:\\Users\\me'",
        ),
        (["cache", "mini", "data.path=a,b"], "); for several folders set data.path=[a,b]"),
        (["sample", "mezzotint-mini", "--width", "512"], "write --size=512xHEIGHT, or --size=512 for a square"),
        (["sample", "mezzotint-mini", "--height=512"], "write --size=WIDTHx512, or --size=512 for a square"),
        (["sample", "mezzotint-mini", "--image", "x.png"], "write sample.image=x.png, and sample.strength=0.75"),
        (["sample", "mezzotint-mini", "--strength=0.4"], "write sample.strength=0.4\n"),
        (["sample", "mezzotint-mini", "--seed=4-1"], "--seed=4-1 must be a rising range of at most 1000 seeds"),
        (["sample", "mezzotint-mini", "--seed=x"], "--seed is a whole number, got 'x'"),
        (["sample", "mezzotint-mini", "--size=big"], "512 for a square, or sdxl-1.46, got 'big'"),
        (["sample", "mezzotint-mini", "--weights=x"], "--weights is raw, or ema for averaged weights, got 'x'"),
    ],
)
def test_common_mistakes_are_answered_with_the_right_command(
    line: list[str], words: str, here: Path, capsys: Captured
) -> None:
    assert main(line) == 2
    out, err = capsys.readouterr()
    assert words in err
    assert out == "", "nothing is printed before the error"
    assert "Traceback" not in err
    assert len(err.splitlines()) <= 2


def test_suggested_setting_is_quoted_for_the_shell(here: Path, capsys: Captured) -> None:
    assert main(["train", "mini", "--data", "my images"]) == 2
    assert "write data.path='my images'" in capsys.readouterr().err


def test_options_may_come_anywhere_and_unknown_ones_are_named(tmp_path: Path) -> None:
    recipe = tmp_path / "r.yaml"
    recipe.write_text("optim: {lr: 1e-6}\n")
    words = ["--out=a=b", str(recipe), "--json", "optim.accumulation=2", "--warm_up", "3"]
    reading, line = arguments.parse_with(words, "bench")
    assert reading.recipe.optim.accumulation == 2
    assert (line.get("--out"), "--json" in line, line.get_integer("--warm-up", 0)) == ("a=b", True, 3)
    assert "--fast" not in line
    for word, hint in (
        ("--jsn", "did you mean --json?"),
        ("--out", "--out needs a value; write --out=FOLDER"),
        ("--json=1", "--json takes no value; write --json"),
    ):
        with pytest.raises(errors.RecipeError) as caught:
            arguments.parse_with([str(recipe), word], "bench")
        assert caught.value.code == "E1012"
        assert hint in str(caught.value)
    with pytest.raises(errors.RecipeError, match=r"write optim\.lr=1"):
        arguments.parse([str(recipe), "--optim.lr=1"], "train")


def test_arguments_can_be_repeated_without_options_of_the_command() -> None:
    foreign = ["--as", "diffusers-sd", "optim.lr=1", "--processes", "2", "--allow-package=x", "--", "--processes=3"]
    line = parse(foreign, "check")
    assert (line.dialect, line.packages, line.get_integer("--processes", 1)) == ("diffusers-sd", ("x",), 2)
    again = line.to_arguments(leaving=["--processes"])
    assert again == ["--as", "diffusers-sd", "optim.lr=1", "--allow-package=x", "--", "--processes=3"]
    assert parse(again, "train").foreign == ("--processes=3",)
