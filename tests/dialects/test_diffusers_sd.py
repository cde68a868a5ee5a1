"""The dialect `diffusers-sd`: every flag has its row, its default is the documented one, and where it acts it moves the
setting that it should, and no other."""

from __future__ import annotations

import shlex
from typing import Any

import pytest

from mezzotint.dialects.base import Launched, Translation
from mezzotint.dialects.diffusers.sd import DIALECT
from mezzotint.errors import CODES, RecipeError
from mezzotint.recipe.reading.paths import by_path, owner
from mezzotint.recipe.reading.read import COMMAND_LINE
from mezzotint.tasks.reading import foreign

BAREST = ("--pretrained_model_name_or_path=sd15", "--train_data_dir=photos")
ALONE, EIGHT = Launched(), Launched(8, "fp16", "accelerate")
ROWS = {row.flag: row for row in DIALECT.rows}

DOCUMENTED: dict[str, Any] = {
    # flags of 0.26.3 with their defaults
    "pretrained_model_name_or_path": None, "revision": None, "non_ema_revision": None, "variant": None,
    "dataset_name": None, "dataset_config_name": None, "train_data_dir": None, "image_column": "image",
    "caption_column": "text", "max_train_samples": None, "validation_prompts": None, "validation_epochs": 5,
    "output_dir": "sd-model-finetuned", "cache_dir": None, "seed": None, "resolution": 512, "center_crop": False,
    "random_flip": False, "train_batch_size": 16, "num_train_epochs": 100, "max_train_steps": None,
    "gradient_accumulation_steps": 1, "gradient_checkpointing": False, "learning_rate": 1e-4, "scale_lr": False,
    "lr_scheduler": "constant", "lr_warmup_steps": 500, "snr_gamma": None, "input_perturbation": 0, "noise_offset": 0,
    "prediction_type": None, "use_8bit_adam": False, "adam_beta1": 0.9, "adam_beta2": 0.999, "adam_weight_decay": 1e-2,
    "adam_epsilon": 1e-8, "max_grad_norm": 1.0, "allow_tf32": False, "use_ema": False, "dataloader_num_workers": 0,
    "enable_xformers_memory_efficient_attention": False, "mixed_precision": None, "checkpointing_steps": 500,
    "checkpoints_total_limit": None, "resume_from_checkpoint": None, "report_to": "tensorboard", "logging_dir": "logs",
    "tracker_project_name": "text2image-fine-tune", "push_to_hub": False, "hub_token": None, "hub_model_id": None,
    "local_rank": -1,
}  # fmt: skip
AT_HEAD: dict[str, Any] = {
    # 0.26.3 is always bilinear, and its default counts
    "image_interpolation_mode": "bilinear", "dream_training": False, "dream_detail_preservation": 1.0,
    "offload_ema": False, "foreach_ema": False,
}  # fmt: skip


def translate(*words: str, launched: Launched = ALONE) -> Translation:
    return DIALECT.translate([*BAREST, *words], launched)


def flat(tree: Any, prefix: str = "") -> dict[str, Any]:
    """Settings by dotted path."""
    if not isinstance(tree, dict):
        return {prefix[:-1]: tree}
    return {path: value for key, inner in tree.items() for path, value in flat(inner, f"{prefix}{key}.").items()}


def changed(*words: str, launched: Launched = ALONE) -> dict[str, Any]:
    """What a line sets otherwise than the barest one does."""
    before, after = flat(translate(launched=launched).settings), flat(translate(*words, launched=launched).settings)
    assert before.keys() <= after.keys() | {"run.epochs"}
    return {path: value for path, value in after.items() if before.get(path, "absent") != value}


def notes(*words: str, launched: Launched = ALONE) -> list[str]:
    return [str(note) for note in translate(*words, launched=launched).notes]


def refusal(*words: str, launched: Launched = ALONE) -> list[tuple[str, str]]:
    with pytest.raises(RecipeError) as caught:
        translate(*words, launched=launched)
    assert caught.value.exit_status == 2
    return [(problem.where, problem.code) for problem in caught.value.problems]


# --- the table --------------------------------------------------------------------------------------------------------


def test_every_flag_of_both_versions_has_one_row_with_its_documented_default() -> None:
    assert len(ROWS) == len(DIALECT.rows)
    assert {flag: row.default for flag, row in ROWS.items() if not row.since} == DOCUMENTED
    assert {flag: row.default for flag, row in ROWS.items() if row.since} == AT_HEAD


def test_every_row_names_settings_that_are_there_and_says_something() -> None:
    for row in DIALECT.rows:
        assert row.about, row.flag
        assert bool(row.to) == (row.outcome in ("mapped", "computed")), row.flag
        for path in row.to:
            assert owner(path) is not None, f"{row.flag} names {path}"


def test_the_barest_line_equals_the_documented_defaults() -> None:
    assert flat(translate().settings) == {
        "schema": 1,
        "model.path": "sd15", "model.family": "sd", "model.train": ["denoiser"], "model.prediction": None,
        "data.path": ["photos"], "data.format": "metadata", "data.columns.image": "image",
        "data.columns.caption": "text", "data.max_samples": None, "data.resolution": 512,
        "data.buckets.shape": "square", "data.buckets.step": 64, "data.crop": "random", "data.flip": 0.0,
        "data.resize": "bilinear",
        "data.batch_size": 16, "data.remainder": "short", "data.workers": 0,
        "objective.min_snr_gamma": None, "objective.min_snr_form": "prediction", "objective.noise_offset": 0.0,
        "optim.optimizer.kind": "adamw", "optim.optimizer.betas": [0.9, 0.999], "optim.optimizer.weight_decay": 0.01,
        "optim.optimizer.eps": 1e-8, "optim.lr": 1e-4, "optim.schedule.kind": "constant",
        "optim.schedule.warmup_steps": 0, "optim.schedule.floor": 0.0, "optim.schedule.cycles": 1,
        "optim.schedule.power": 1.0, "optim.accumulation": 1, "optim.clip.norm": 1.0, "optim.clip.scope": "all",
        "optim.ema.rule": "none", "optim.ema.decay": 0.9999, "optim.ema.interval": 1, "optim.ema.device": "same",
        "run.epochs": 100, "run.seed": 0, "run.precision": "fp32", "run.weight_dtype": "fp32",
        "run.frozen_dtype": "fp32", "run.recompute.enabled": False, "run.save.every": "500 steps",
        "run.save.keep": None, "run.export.folder": "sd-model-finetuned", "run.folder": "sd-model-finetuned",
        "run.name": "sd-model-finetuned",
        "run.resume": "never", "run.preview.every": None, "run.preview.weights": "raw", "run.tensorboard": True,
        "sample.seed": 0, "sample.steps": 20, "sample.guidance": 7.5,
    }  # fmt: skip


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


# --- what each flag does ----------------------------------------------------------------------------------------------

ACTS: dict[str, tuple[list[str], dict[str, Any]]] = {
    "pretrained_model_name_or_path": (["--pretrained_model_name_or_path=other"], {"model.path": "other"}),
    "revision": (["--pretrained_model_name_or_path=a/b", "--revision=fp16"], {"model.path": "a/b@fp16"}),
    "dataset_name": (["--dataset_name=me/pictures"], {"data.path": ["me/pictures"]}),
    "dataset_config_name": (["--dataset_config_name=small"], {"data.hub_config": "small"}),
    "train_data_dir": (["--train_data_dir=b"], {"data.path": ["b"]}),
    "image_column": (["--image_column=picture"], {"data.columns.image": "picture"}),
    "caption_column": (["--caption_column=words"], {"data.columns.caption": "words"}),
    "max_train_samples": (["--max_train_samples=7"], {"data.max_samples": 7}),
    "cache_dir": (["--cache_dir=/disk/hub"], {"data.hub_cache": "/disk/hub"}),
    "resolution": (["--resolution=768"], {"data.resolution": 768}),
    "center_crop": (["--center_crop"], {"data.crop": "center"}),
    "random_flip": (["--random_flip"], {"data.flip": 0.5}),
    "image_interpolation_mode": (["--image_interpolation_mode=nearest_exact"], {"data.resize": "nearest"}),
    "train_batch_size": (["--train_batch_size=3"], {"data.batch_size": 3}),
    "dataloader_num_workers": (["--dataloader_num_workers=4"], {"data.workers": 4}),
    "num_train_epochs": (["--num_train_epochs=2"], {"run.epochs": 2}),
    "max_train_steps": (["--max_train_steps=11"], {"run.steps": 11}),
    "gradient_accumulation_steps": (["--gradient_accumulation_steps=4"], {"optim.accumulation": 4}),
    "gradient_checkpointing": (["--gradient_checkpointing"], {"run.recompute.enabled": True}),
    "learning_rate": (["--learning_rate=1e-05"], {"optim.lr": 1e-5}),
    "scale_lr": (
        ["--scale_lr", "--train_batch_size=2", "--gradient_accumulation_steps=3"],
        {"optim.lr": pytest.approx(6e-4), "data.batch_size": 2, "optim.accumulation": 3},
    ),
    "lr_scheduler": (
        ["--lr_scheduler=cosine"],
        {"optim.schedule.kind": "cosine", "optim.schedule.warmup_steps": 500},
    ),
    "lr_warmup_steps": (
        ["--lr_scheduler=constant_with_warmup", "--lr_warmup_steps=9"],
        {"optim.schedule.warmup_steps": 9},
    ),
    "use_8bit_adam": (["--use_8bit_adam"], {"optim.optimizer.kind": "adamw-8bit"}),
    "adam_beta1": (["--adam_beta1=0.8"], {"optim.optimizer.betas": [0.8, 0.999]}),
    "adam_beta2": (["--adam_beta2=0.99"], {"optim.optimizer.betas": [0.9, 0.99]}),
    "adam_weight_decay": (["--adam_weight_decay=0"], {"optim.optimizer.weight_decay": 0.0}),
    "adam_epsilon": (["--adam_epsilon=1e-6"], {"optim.optimizer.eps": 1e-6}),
    "max_grad_norm": (["--max_grad_norm=0.5"], {"optim.clip.norm": 0.5}),
    "use_ema": (["--use_ema"], {"optim.ema.rule": "ramp", "run.preview.weights": "ema"}),
    "offload_ema": (["--offload_ema"], {"optim.ema.device": "cpu"}),
    "snr_gamma": (["--snr_gamma=5"], {"objective.min_snr_gamma": 5.0}),
    "noise_offset": (["--noise_offset=0.1"], {"objective.noise_offset": 0.1}),
    "input_perturbation": (["--input_perturbation=0.1"], {"objective.input_perturbation": 0.1}),
    "prediction_type": (["--prediction_type=v_prediction"], {"model.prediction": "v"}),
    "output_dir": (
        ["--output_dir=out/my model"],
        {"run.folder": "out/my model", "run.export.folder": "out/my model", "run.name": "my-model"},
    ),
    "seed": (["--seed=7"], {"run.seed": 7, "sample.seed": 7}),
    "mixed_precision": (["--mixed_precision=bf16"], {"run.precision": "bf16", "run.frozen_dtype": "same"}),
    "allow_tf32": (["--allow_tf32"], {"run.tf32": True}),
    "checkpointing_steps": (["--checkpointing_steps=50"], {"run.save.every": "50 steps"}),
    "checkpoints_total_limit": (["--checkpoints_total_limit=3"], {"run.save.keep": 3}),
    "resume_from_checkpoint": (["--resume_from_checkpoint=latest"], {"run.resume": "auto"}),
    "validation_prompts": (
        ["--validation_prompts", "a cat", "a dog"],
        {"sample.prompts": ["a cat", "a dog"], "run.preview.every": "5 epochs"},
    ),
    "validation_epochs": (
        ["--validation_prompts=a cat", "--validation_epochs=2"],
        {"sample.prompts": ["a cat"], "run.preview.every": "2 epochs"},
    ),
    "report_to": (
        ["--report_to=wandb"],
        {"run.tensorboard": False, "run.wandb.mode": "online", "run.wandb.project": "text2image-fine-tune"},
    ),
    "tracker_project_name": (
        ["--report_to=wandb", "--tracker_project_name=cats"],
        {"run.tensorboard": False, "run.wandb.mode": "online", "run.wandb.project": "cats"},
    ),
}


def test_every_flag_that_acts_is_shown_acting() -> None:
    assert set(ACTS) == {flag for flag, row in ROWS.items() if row.outcome in ("mapped", "computed")}


@pytest.mark.parametrize("flag", ACTS)
def test_a_flag_moves_its_settings_and_no_others(flag: str) -> None:
    words, expected = ACTS[flag]
    assert changed(*words) == expected
    origin = translate(*words).origin
    for path in expected:
        assert origin[path].removeprefix("default of ").startswith("--"), path


@pytest.mark.parametrize("flag", ACTS)
def test_what_a_flag_says_is_a_recipe_that_reads_back(flag: str) -> None:
    words, _ = ACTS[flag]
    found = translate(*words)
    made = foreign.reading("diffusers-sd", [*BAREST, *words], (), ALONE)
    recipe = flat(made.recipe.model_dump(mode="json", by_alias=True))
    for path, value in flat(found.settings).items():
        read = recipe[path]
        wanted = str(value) if isinstance(read, str) and not isinstance(value, str) else value
        assert read in (wanted, [wanted]), path  # one value may stand where a list is read


@pytest.mark.parametrize("flag", sorted(flag for flag, row in ROWS.items() if row.outcome == "without effect"))
def test_a_flag_without_effect_says_why_and_changes_nothing(flag: str) -> None:
    words = [f"--{flag}"] if ROWS[flag].form == "switch" else [f"--{flag}=3"]
    assert changed(*words) == {}
    assert [note for note in notes(*words) if note.startswith(f"--{flag}: ")] == [f"--{flag}: {ROWS[flag].about}"]
    assert not any(note.startswith(f"--{flag}: ") for note in notes())


@pytest.mark.parametrize("flag", sorted(flag for flag, row in ROWS.items() if row.outcome == "refused"))
def test_a_refused_flag_is_an_error_that_says_why(flag: str) -> None:
    words = [f"--{flag}"] if ROWS[flag].form == "switch" else [f"--{flag}=secret"]
    with pytest.raises(RecipeError) as caught:
        translate(*words)
    assert [(p.where, p.code, p.what) for p in caught.value.problems] == [(f"--{flag}", "E1018", ROWS[flag].about)]
    assert "secret" not in str(caught.value)


# --- what needs more than one flag ------------------------------------------------------------------------------------


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
    found = translate(*words, launched=launched)
    run = found.settings["run"]
    assert (run["precision"], run["frozen_dtype"], run["weight_dtype"]) == (precision, frozen, "fp32")
    said = [str(n) for n in found.notes if n.flag == "mixed_precision" and "float32" not in n.text]
    assert len(said) == (note is not None)
    assert note is None or note in said[0]
    if words:
        assert found.origin["run.precision"] == "--mixed_precision"
    elif launched.mixed_precision:
        assert found.origin["run.precision"] == "the launcher (accelerate)"


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
    told = " ".join(notes("--gradient_accumulation_steps=4", "--seed=1", "--prediction_type=epsilon", launched=EIGHT))
    for words in ("loss shown is that of the whole step", "counts fully", "noise of its own", "added in float32",
                  "exported scheduler says so"):  # fmt: skip
        assert words in told
    assert notes() == ["--seed: not given; 0 is taken, so that the run can be repeated. Other numbers draw anew"]


@pytest.mark.parametrize(
    ("words", "where"),
    [
        (["--resolution=500"], "--resolution"),
        (["--resolution=8"], "--resolution"),
        (["--train_batch_size=0"], "--train_batch_size"),
        (["--max_train_steps=0"], "--max_train_steps"),
        (["--num_train_epochs=0"], "--num_train_epochs"),
        (["--gradient_accumulation_steps=0"], "--gradient_accumulation_steps"),
        (["--max_train_samples=0"], "--max_train_samples"),
        (["--checkpointing_steps=0"], "--checkpointing_steps"),
        (["--checkpoints_total_limit=0"], "--checkpoints_total_limit"),
        (["--validation_prompts=a", "--validation_epochs=0"], "--validation_epochs"),
        (["--max_grad_norm=0"], "--max_grad_norm"),
        (["--lr_warmup_steps=-1"], "--lr_warmup_steps"),
        (["--seed=-1"], "--seed"),
        (["--lr_scheduler=polynomial", "--learning_rate=1e-8"], "--learning_rate"),
        (["--lr_scheduler=piecewise_constant"], "--lr_scheduler"),
        (["--report_to=comet_ml"], "--report_to"),
        (["--image_interpolation_mode=bicubicc"], "--image_interpolation_mode"),
    ],
)
def test_values_that_cannot_be_are_named_by_their_flag(words: list[str], where: str) -> None:
    [(found, code)] = refusal(*words)
    assert (found, code in CODES) == (where, True)


@pytest.mark.parametrize(
    ("words", "where"),
    [
        (["--adam_epsilon=0"], "--adam_epsilon"),
        (["--adam_beta2=1"], "--adam_beta2"),
        (["--dataloader_num_workers=-1"], "--dataloader_num_workers"),
        (["--snr_gamma=0"], "--snr_gamma"),
        (["--noise_offset=-1"], "--noise_offset"),
        (["--learning_rate=-1"], "--learning_rate"),
        (["--resolution=8192"], "--resolution"),
    ],
)
def test_what_the_recipe_refuses_is_told_in_the_words_of_the_line(words: list[str], where: str) -> None:
    with pytest.raises(RecipeError) as caught:
        foreign.reading("diffusers-sd", [*BAREST, *words], (), ALONE)
    assert [problem.where for problem in caught.value.problems] == [where]
    assert str(caught.value).startswith("the line of diffusers-sd has 1 problem\n  given  --")


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
    found = DIALECT.translate(["python", "my_train.py", *BAREST], ALONE)
    assert any("my_train.py is taken for train_text_to_image.py" in str(note) for note in found.notes)
    assert found.settings == translate().settings


def test_a_pasted_launcher_of_one_process_hands_over_its_precision() -> None:
    line = ["accelerate", "launch", "--mixed_precision=fp16", "--cpu", "train_text_to_image.py", *BAREST]
    found = DIALECT.translate(line, ALONE)
    assert found.settings["run"]["precision"] == "fp16"
    assert found.settings["run"]["device"] == "cpu"
    assert found.origin["run.precision"] == "the launcher (accelerate)"
    assert any("at the beginning of the line is dropped" in str(note) for note in found.notes)


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
    wanted = {
        "data.batch_size": 64, "optim.accumulation": 4, "run.steps": 101, "optim.lr": 1e-5, "optim.clip.norm": 1.0,
        "optim.schedule.kind": "constant", "optim.schedule.warmup_steps": 0, "optim.ema.rule": "ramp",
        "data.resolution": 512, "data.crop": "center", "data.flip": 0.5, "data.remainder": "fill",
        "run.precision": "fp16", "run.folder": "sd-pokemon-model", "run.recompute.enabled": False,
        "model.path": "CompVis/stable-diffusion-v1-4", "data.path": ["lambdalabs/pokemon-blip-captions"],
    }  # fmt: skip
    assert {path: settings[path] for path in wanted} == wanted
    assert "run.compile" not in settings, "a protocol is kept: nothing faster is switched on"


def test_settings_may_be_laid_over_a_line_and_keep_their_origin() -> None:
    made = foreign.reading("diffusers-sd", [*BAREST, "--seed=3"], ["optim.lr=1e-6", "data.captions.dropout=0.1"], ALONE)
    assert (made.recipe.optim.lr, made.recipe.data.captions.dropout, made.recipe.run.seed) == (1e-6, 0.1, 3)
    assert made.origin["optim.lr"] == made.origin["data.captions.dropout"] == COMMAND_LINE
    assert made.origin["run.seed"] == "--seed"
    assert set(made.origin) <= set(by_path())
    with pytest.raises(RecipeError, match=r"given  optim\.lrr  E1001"):
        foreign.reading("diffusers-sd", BAREST, ["optim.lrr=1"], ALONE)
