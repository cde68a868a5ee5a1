"""The dialect `diffusers-sd`: what several flags decide together. What holds for every dialect:
test_contract.py."""

from __future__ import annotations

import shlex

import pytest
from dialect_cases.diffusers_sd import BAREST, LINES
from foreign_lines import ALONE, flat

from mezzotint.dialects.base import Launched
from mezzotint.dialects.diffusers.sd import DIALECT
from mezzotint.errors import RecipeError
from mezzotint.recipe.reading.paths import by_path
from mezzotint.recipe.reading.read import COMMAND_LINE
from mezzotint.tasks.reading import foreign

EIGHT = Launched(8, "fp16", "accelerate")
translate, changed, notes, refusal = LINES.translate, LINES.changed, LINES.notes, LINES.refusal


def test_what_the_script_leaves_out_is_left_out_by_the_recipe_s_own_defaults() -> None:
    recipe = foreign.reading("diffusers-sd", BAREST, (), ALONE).recipe
    assert recipe.data.captions.dropout == 0.0
    assert recipe.data.captions.missing == "error"
    assert recipe.data.holdout.share == 0.0
    assert recipe.data.repeats == (1.0,)
    assert (recipe.data.cache.latents, recipe.data.cache.text) == (False, False)
    assert (recipe.objective.loss, recipe.objective.timesteps) == ("mse", (0, 1000))
    assert recipe.objective.zero_terminal_snr is False
    assert recipe.objective.input_perturbation == 0.0
    assert recipe.optim.part_lr == {}
    assert recipe.optim.schedule.decay_steps is None
    assert (recipe.run.compile, recipe.run.micro_batch, recipe.run.tf32) == (False, None, False)
    assert (recipe.run.scaler.init, recipe.run.scaler.growth_interval) == (65536.0, 2000)
    assert recipe.run.export.dtype == "fp32"
    assert recipe.model.weights == "files"


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("constant", ("constant", 0, 0.0)),
        ("constant_with_warmup", ("constant", 500, 0.0)),
        ("linear", ("linear", 500, 0.0)),
        ("cosine", ("cosine", 500, 0.0)),
        ("cosine_with_restarts", ("restarts", 500, 0.0)),
        ("polynomial", ("polynomial", 500, 1e-3)),
    ],
)
def test_schedules_are_those_of_the_library(kind: str, expected: tuple[str, int, float]) -> None:
    schedule = translate(f"--lr_scheduler={kind}").settings["optim"]["schedule"]
    assert (schedule["kind"], schedule["warmup_steps"], schedule["floor"]) == pytest.approx(expected)
    assert (schedule["cycles"], schedule["power"]) == (1, 1.0)


def test_a_constant_rate_has_no_warm_up_and_says_so_when_one_is_written() -> None:
    assert changed("--lr_warmup_steps=9") == {}
    assert any("constant_with_warmup" in note for note in notes("--lr_warmup_steps=9"))
    assert not any("warmup" in note for note in notes())


def test_a_batch_is_that_of_all_processes() -> None:
    words = ("--train_batch_size=8", "--gradient_accumulation_steps=4", "--scale_lr")
    settings = flat(translate(*words, launched=EIGHT).settings)
    assert (settings["data.batch_size"], settings["optim.accumulation"]) == (64, 4)
    assert settings["optim.lr"] == pytest.approx(1e-4 * 256)
    assert settings["data.remainder"] == "fill"
    assert any("a batch of 64" in note for note in notes(*words, launched=EIGHT))


@pytest.mark.parametrize(
    ("words", "launched", "precision", "frozen", "note"),
    [
        ((), Launched(), "fp32", "fp32", None),
        ((), Launched(1, "fp16", "accelerate"), "fp16", "same", "as the launcher hands over"),
        ((), Launched(1, "no", "accelerate"), "fp32", "fp32", "as the launcher hands over"),
        (("--mixed_precision=bf16",), Launched(1, "fp16", "accelerate"), "bf16", "same", "the flag counts"),
        (("--mixed_precision=no",), Launched(1, "fp16", "accelerate"), "fp32", "fp32", "the flag counts"),
        (("--mixed_precision=fp16",), Launched(), "fp16", "same", None),
    ],
)
def test_the_own_precision_wins_over_the_launcher_s_and_its_origin_is_told(
    words: tuple[str, ...], launched: Launched, precision: str, frozen: str, note: str | None
) -> None:
    translation = translate(*words, launched=launched)
    run = translation.settings["run"]
    assert (run["precision"], run["frozen_dtype"], run["weight_dtype"]) == (precision, frozen, "fp32")
    said = [str(n) for n in translation.notes if n.flag == "mixed_precision" and "float32" not in n.text]
    assert len(said) == (note is not None)
    assert note is None or note in said[0]
    if words:
        assert translation.origin["run.precision"] == "--mixed_precision"
    elif launched.mixed_precision:
        assert translation.origin["run.precision"] == "the launcher (accelerate)"


def test_a_precision_of_the_launcher_that_is_not_there_is_refused() -> None:
    assert refusal(launched=Launched(1, "fp8", "accelerate")) == [("--mixed_precision", "E1018")]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("latest", "auto"),
        ("checkpoint-500", "step-00000500"),
        ("/elsewhere/checkpoint-12/", "step-00000012"),
        ("runs/other", "runs/other"),
    ],
)
def test_resuming_names_our_checkpoints(given: str, expected: str) -> None:
    assert changed(f"--resume_from_checkpoint={given}") == {"run.resume": expected}
    assert any("goes on exactly" in note for note in notes(f"--resume_from_checkpoint={given}"))


def test_steps_count_before_epochs_and_the_data_set_s_name_before_its_folder() -> None:
    assert "epochs" not in translate("--max_train_steps=5", "--num_train_epochs=2").settings["run"]
    assert any("--max_train_steps counts" in n for n in notes("--max_train_steps=5", "--num_train_epochs=2"))
    assert any("--dataset_name counts" in n for n in notes("--dataset_name=a/b"))


def test_quirks_that_are_not_copied_are_notes_where_they_would_have_shown() -> None:
    said = " ".join(notes("--gradient_accumulation_steps=4", "--seed=1", "--prediction_type=epsilon", launched=EIGHT))
    for words in ("loss shown is that of the whole step", "counts fully", "noise of its own", "added in float32",
                  "exported scheduler says so"):  # fmt: skip
        assert words in said
    assert notes() == ["--seed: not given; 0 is taken, so that the run can be repeated. Other numbers draw anew"]


def test_all_problems_of_a_line_are_told_at_once() -> None:
    with pytest.raises(RecipeError) as caught:
        DIALECT.translate(["--bathc=3", "--resolution=x", "--push_to_hub", "--max_grad_norm=0"], ALONE)
    assert {problem.where for problem in caught.value.problems} == {
        "--bathc", "--resolution", "--push_to_hub", "--max_grad_norm", "--pretrained_model_name_or_path",
        "--train_data_dir",
    }  # fmt: skip


def test_a_data_set_s_name_that_cannot_be_read_is_not_called_missing() -> None:
    with pytest.raises(RecipeError) as caught:
        DIALECT.translate([BAREST[0], "--dataset_name=$DATASET_NAME"], ALONE)
    assert [problem.where for problem in caught.value.problems] == ["--dataset_name"]


def test_the_nearest_flag_is_named() -> None:
    with pytest.raises(RecipeError, match=r"--train_batchsize +E1016 unknown flag; did you mean --train_batch_size\?"):
        translate("--train_batchsize=3")


def test_other_scripts_of_the_project_are_refused_by_name_and_an_own_name_is_noted() -> None:
    with pytest.raises(RecipeError, match="trains SDXL"):
        DIALECT.translate(["python", "train_text_to_image_sdxl.py", *BAREST], ALONE)
    translation = DIALECT.translate(["python", "my_train.py", *BAREST], ALONE)
    assert any("my_train.py is taken for train_text_to_image.py" in str(note) for note in translation.notes)
    assert translation.settings == translate().settings


def test_a_pasted_launcher_of_one_process_hands_over_its_precision() -> None:
    line = ["accelerate", "launch", "--mixed_precision=fp16", "--cpu", "train_text_to_image.py", *BAREST]
    translation = DIALECT.translate(line, ALONE)
    assert translation.settings["run"]["precision"] == "fp16"
    assert translation.settings["run"]["device"] == "cpu"
    assert translation.origin["run.precision"] == "the launcher (accelerate)"
    assert any("at the beginning of the line is dropped" in str(note) for note in translation.notes)


BENCHMARK = shlex.split(
    "accelerate launch --multi_gpu --num_processes=8 --mixed_precision=fp16 train_text_to_image.py "
    "--pretrained_model_name_or_path=CompVis/stable-diffusion-v1-4 --dataset_name=lambdalabs/pokemon-blip-captions "
    "--use_ema --resolution=512 --center_crop --random_flip --train_batch_size=8 --gradient_accumulation_steps=4 "
    "--max_train_steps=101 --learning_rate=1e-05 --max_grad_norm=1 --lr_scheduler=constant --lr_warmup_steps=0 "
    "--output_dir=sd-pokemon-model"
)


def test_the_benchmark_line_is_answered_with_the_line_to_type_and_means_the_protocol() -> None:
    with pytest.raises(RecipeError, match="torchrun --nproc-per-node 8 -m mezzotint train --as diffusers-sd") as caught:
        DIALECT.translate(BENCHMARK, ALONE)
    typed = str(caught.value).partition(" -- ")[2].split()
    settings = flat(DIALECT.translate(typed, Launched(8)).settings)
    assert settings == flat(DIALECT.translate(BENCHMARK, EIGHT).settings)
    protocol = {
        "data.batch_size": 64, "optim.accumulation": 4, "run.steps": 101, "optim.lr": 1e-5, "optim.clip.norm": 1.0,
        "optim.schedule.kind": "constant", "optim.schedule.warmup_steps": 0, "optim.ema.rule": "ramp",
        "data.resolution": 512, "data.crop": "center", "data.flip": 0.5, "data.remainder": "fill",
        "run.precision": "fp16", "run.folder": "sd-pokemon-model", "run.recompute.enabled": False,
        "model.path": "CompVis/stable-diffusion-v1-4", "data.path": ["lambdalabs/pokemon-blip-captions"],
    }  # fmt: skip
    assert {path: settings[path] for path in protocol} == protocol
    assert "run.compile" not in settings, "a protocol is kept: nothing faster is switched on"


def test_settings_may_be_laid_over_a_line_and_keep_their_origin() -> None:
    reading = foreign.reading(
        "diffusers-sd", [*BAREST, "--seed=3"], ["optim.lr=1e-6", "data.captions.dropout=0.1"], ALONE
    )
    assert (reading.recipe.optim.lr, reading.recipe.data.captions.dropout, reading.recipe.run.seed) == (1e-6, 0.1, 3)
    assert reading.origin["optim.lr"] == reading.origin["data.captions.dropout"] == COMMAND_LINE
    assert reading.origin["run.seed"] == "--seed"
    assert set(reading.origin) <= set(by_path())
    with pytest.raises(RecipeError, match=r"given  optim\.lrr  E1001"):
        foreign.reading("diffusers-sd", BAREST, ["optim.lrr=1"], ALONE)
