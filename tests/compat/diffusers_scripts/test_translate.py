"""The command `translate`, and `--as NAME -- …` of the other commands: what is printed, what reads back, how words are
parted, and where a hub id is found."""

from __future__ import annotations

from pathlib import Path

import pytest
from foreign_lines import printed

from mezzotint.cli import main
from mezzotint.errors import RecipeError
from mezzotint.settings.reading.read import read, read_text
from mezzotint.tasks import translate
from mezzotint.tasks.reading import foreign

LINE = ("--pretrained_model_name_or_path=sd15", "--train_data_dir=photos")


@pytest.mark.parametrize(
    "more",
    [
        (),
        ("--use_ema", "--seed=3", "--checkpoints_total_limit=2", "--lr_scheduler=polynomial"),
        ("--validation_prompts", "a cat: \"red\", 'blue' # no comment", "100", "", "null", "über\n two  lines", "- x"),
        ("--output_dir", "my folder/ÄÖ: #1", "--caption_column", "true", "--image_column", "1e5"),
        ("--train_data_dir", r"C:\images\new", "--cache_dir=~/hub"),
    ],
)
def test_printed_recipe_reads_back_the_same(
    more: tuple[str, ...], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    text = printed(capsys, "--as", "diffusers-sd", "--", *LINE, *more)
    (tmp_path / "recipe.yaml").write_text(text, "utf-8")
    direct = foreign.read_command_line("diffusers-sd", [*LINE, *more], (), foreign.Launched())
    assert read(tmp_path / "recipe.yaml").recipe == direct.recipe
    assert read(tmp_path / "recipe.yaml").digest == direct.digest


def test_each_setting_names_its_flag_and_notes_come_last(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, "--as=diffusers-sd", "--", "python", "train_text_to_image.py", *LINE, "--foreach_ema", "^")
    assert "  path: sd15  # --pretrained_model_name_or_path\n" in text
    assert "  lr: 0.0001  # default of --learning_rate\n" in text
    settings, _, notes = text.partition("# note")
    assert "--foreach_ema" not in settings
    for words in (
        "line continuation character",
        "train_text_to_image.py` at the start",
        "--foreach_ema: the average",
    ):
        assert words in notes.replace("\n#      ", "")
    assert all(line.startswith("#") for line in notes.splitlines()[1:])


def test_translation_accounts_for_the_number_of_processes(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, "--as", "diffusers-sd", "--processes=4", "--", *LINE)
    assert read_text(text).recipe.data.batch_size == 64


def test_refused_command_exits_with_2_and_prints_no_recipe(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["translate", "--as", "diffusers-sd", "--", *LINE, "--bogus"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "given  --bogus  E1016 unknown flag" in err


@pytest.mark.parametrize(
    ("words", "code", "hint"),
    [
        (["--as", "diffusers-sd"], "E1012", "--as needs the foreign command line after --"),
        (["--as", "diffuser-sd", "--"], "E1015", "did you mean diffusers-sd?"),
        (["--as", "diffusers-sd", "--json", "--"], "E1012", "mezzotint translate has no option --json"),
        (["--as", "diffusers-sd", "optim.lr=1", "--"], "E1012", "--as has no recipe and no --out without --to"),
        (["--as", "diffusers-sd", "--processes=0", "--", *LINE], "E1012", "--processes is a whole number"),
    ],
)
def test_malformed_command_prints_its_usage(words: list[str], code: str, hint: str) -> None:
    with pytest.raises(RecipeError, match=r".") as caught:
        translate.run(words)
    assert caught.value.code == code
    assert hint in str(caught.value)
