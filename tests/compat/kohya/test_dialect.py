"""Config files, and all problems of a command at once."""

from __future__ import annotations

from pathlib import Path

import pytest
from kohya_commands import line, refusal, settings

from mezzotint.compat.kohya.dialect import DIALECT
from mezzotint.errors import RecipeError
from mezzotint.settings.reading.translation import Launched


def test_config_file_gives_options_and_the_command_line_overrides_it() -> None:
    Path("fox.toml").write_text("[a]\nseed = 3\nlearning_rate = 1e-4\n[b.c]\ntext_encoder_lr = [5e-5, 1e-5]\n", "utf-8")
    translated = settings("sdxl_train_network", "--config_file=fox.toml", "--learning_rate=2e-4")
    assert translated["optim.lr"] == 2e-4
    assert translated["optim.part_lr.text_encoder_2"] == 1e-5


def test_config_file_may_lack_its_suffix() -> None:
    Path("fox.toml").write_text("max_train_epochs = 3\n", "utf-8")
    assert settings("train_db", "--config_file=fox")["run.epochs"] == 3


@pytest.mark.parametrize(
    ("text", "where", "line_number", "code"),
    [
        ("[a]\nlearnin_rate = 1\n", "a.learnin_rate in fox.toml", 2, "E1016"),
        ("[a]\nseed = 'x'\n", "a.seed in fox.toml", 2, "E1017"),
        ("[a]\nseed = 1\n[b]\nseed = 2\n", "b.seed in fox.toml", 4, "E1017"),
        ("seed = \n", "--config_file", None, "E1017"),
    ],
)
def test_mistakes_of_a_config_file_are_named(text: str, where: str, line_number: int | None, code: str) -> None:
    Path("fox.toml").write_text(text, "utf-8")
    words = [word for word in line("train_db") if "seed" not in word]
    with pytest.raises(RecipeError) as caught:
        DIALECT.translate([*words, "--config_file=fox.toml"], Launched())
    [problem] = caught.value.problems
    assert (problem.where, problem.line, problem.code) == (where, line_number, code)


def test_missing_config_file_is_named() -> None:
    [(where, code, message)] = refusal("train_db", "--config_file=none.toml")
    assert (where, code) == ("--config_file", "E1017")
    assert "none.toml cannot be read" in message


def test_all_problems_are_reported_together() -> None:
    translated = refusal(
        "train_network", "--network_dim=0", "--loss_type=huber", "--huber_c=0", "--lr_scheduler=cosin",
        "--weighted_captions",
    )  # fmt: skip
    assert [one[0] for one in translated] == ["--weighted_captions", "--network_dim", "--huber_c", "--lr_scheduler"]


def test_command_without_anything_names_what_is_missing() -> None:
    with pytest.raises(RecipeError) as caught:
        DIALECT.translate(["train_network.py"], Launched())
    where = {problem.where for problem in caught.value.problems}
    assert {"--pretrained_model_name_or_path", "--network_module", "--output_dir"} <= where
