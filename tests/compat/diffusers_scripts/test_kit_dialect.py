"""How any dialect reads a command, with `diffusers-sd` as the example: problems, scripts, a launcher, overrides."""

from __future__ import annotations

import pytest
from dialect_cases.diffusers_sd import BAREST, LINES
from foreign_lines import ALONE

from mezzotint.errors import RecipeError
from mezzotint.settings.reading.paths import by_path
from mezzotint.settings.reading.read import COMMAND_LINE
from mezzotint.tasks.reading import foreign

translate, changed, notes, refusal = LINES.translate, LINES.changed, LINES.notes, LINES.refusal


def test_all_problems_of_a_command_are_reported_together() -> None:
    with pytest.raises(RecipeError) as caught:
        LINES.dialect.translate(["--bathc=3", "--resolution=x", "--push_to_hub", "--max_grad_norm=0"], ALONE)
    assert {problem.where for problem in caught.value.problems} == {
        "--bathc", "--resolution", "--push_to_hub", "--max_grad_norm", "--pretrained_model_name_or_path",
        "--train_data_dir",
    }  # fmt: skip


def test_unreadable_dataset_name_is_not_reported_as_missing() -> None:
    with pytest.raises(RecipeError) as caught:
        LINES.dialect.translate([BAREST[0], "--dataset_name=$DATASET_NAME"], ALONE)
    assert [problem.where for problem in caught.value.problems] == ["--dataset_name"]


def test_nearest_flag_is_proposed() -> None:
    with pytest.raises(RecipeError, match=r"--train_batchsize +E1016 unknown flag; did you mean --train_batch_size\?"):
        translate("--train_batchsize=3")


def test_other_scripts_are_refused_and_a_renamed_script_is_noted() -> None:
    with pytest.raises(RecipeError, match="trains SDXL"):
        LINES.dialect.translate(["python", "train_text_to_image_sdxl.py", *BAREST], ALONE)
    translation = LINES.dialect.translate(["python", "my_train.py", *BAREST], ALONE)
    assert any("my_train.py is read as train_text_to_image.py" in str(note) for note in translation.notes)
    assert translation.settings == translate().settings


def test_pasted_launcher_of_one_process_sets_precision() -> None:
    line = ["accelerate", "launch", "--mixed_precision=fp16", "--cpu", "train_text_to_image.py", *BAREST]
    translation = LINES.dialect.translate(line, ALONE)
    assert translation.settings["run"]["precision"] == "fp16"
    assert translation.settings["run"]["device"] == "cpu"
    assert translation.origin["run.precision"] == "the launcher (accelerate)"
    assert any("at the start of the command is dropped" in str(note) for note in translation.notes)


def test_settings_override_a_command_and_keep_their_origin() -> None:
    reading = foreign.read_command_line(
        "diffusers-sd", [*BAREST, "--seed=3"], ["optim.lr=1e-6", "data.captions.dropout=0.1"], ALONE
    )
    assert (reading.recipe.optim.lr, reading.recipe.data.captions.dropout, reading.recipe.run.seed) == (1e-6, 0.1, 3)
    assert reading.origin["optim.lr"] == reading.origin["data.captions.dropout"] == COMMAND_LINE
    assert reading.origin["run.seed"] == "--seed"
    assert set(reading.origin) <= set(by_path())
    with pytest.raises(RecipeError, match=r"given  optim\.lrr  E1001"):
        foreign.read_command_line("diffusers-sd", BAREST, ["optim.lrr=1"], ALONE)
