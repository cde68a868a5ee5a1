"""The dialect `diffusers-sdxl`: every flag has its row, its default is the documented one, and where it acts it moves
the setting that it should, and no other. What it shares with `diffusers-sd` is shown there."""

from __future__ import annotations

from typing import Any

import pytest

from mezzotint.dialects.base import Launched, Translation
from mezzotint.dialects.diffusers import sd as diffusers_sd
from mezzotint.dialects.diffusers.sdxl import DIALECT
from mezzotint.errors import RecipeError
from mezzotint.recipe.reading.paths import owner
from mezzotint.tasks.reading import foreign

BAREST = ("--pretrained_model_name_or_path=sdxl", "--train_data_dir=photos")
ALONE, EIGHT = Launched(), Launched(8, "fp16", "accelerate")
ROWS = {row.flag: row for row in DIALECT.rows}

DOCUMENTED: dict[str, Any] = {
    # flags of 0.26.3 with their defaults
    "pretrained_model_name_or_path": None, "pretrained_vae_model_name_or_path": None, "revision": None,
    "variant": None, "dataset_name": None, "dataset_config_name": None, "train_data_dir": None,
    "image_column": "image", "caption_column": "text", "max_train_samples": None, "validation_prompt": None,
    "num_validation_images": 4, "validation_epochs": 1, "proportion_empty_prompts": 0,
    "output_dir": "sdxl-model-finetuned", "cache_dir": None, "seed": None, "resolution": 1024, "center_crop": False,
    "random_flip": False, "train_batch_size": 16, "num_train_epochs": 100, "max_train_steps": None,
    "gradient_accumulation_steps": 1, "gradient_checkpointing": False, "learning_rate": 1e-4, "scale_lr": False,
    "lr_scheduler": "constant", "lr_warmup_steps": 500, "snr_gamma": None, "timestep_bias_strategy": "none",
    "timestep_bias_multiplier": 1.0, "timestep_bias_begin": 0, "timestep_bias_end": 1000,
    "timestep_bias_portion": 0.25, "noise_offset": 0, "prediction_type": None, "use_8bit_adam": False,
    "adam_beta1": 0.9, "adam_beta2": 0.999, "adam_weight_decay": 1e-2, "adam_epsilon": 1e-8, "max_grad_norm": 1.0,
    "allow_tf32": False, "use_ema": False, "dataloader_num_workers": 0,
    "enable_xformers_memory_efficient_attention": False, "mixed_precision": None, "checkpointing_steps": 500,
    "checkpoints_total_limit": None, "resume_from_checkpoint": None, "report_to": "tensorboard", "logging_dir": "logs",
    "push_to_hub": False, "hub_token": None, "hub_model_id": None, "local_rank": -1,
}  # fmt: skip
AT_HEAD: dict[str, Any] = {"image_interpolation_mode": "bilinear", "enable_npu_flash_attention": False}


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


def notes(*words: str, launched: Launched = ALONE) -> str:
    return "\n".join(str(note) for note in translate(*words, launched=launched).notes)


def refusal(*words: str) -> list[tuple[str, str]]:
    with pytest.raises(RecipeError) as caught:
        foreign.translation("diffusers-sdxl", [*BAREST, *words], ALONE)
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
        "model.path": "sdxl", "model.family": "sdxl", "model.train": ["denoiser"], "model.prediction": None,
        "data.path": ["photos"], "data.format": "metadata", "data.columns.image": "image",
        "data.columns.caption": "text", "data.max_samples": None, "data.resolution": 1024,
        "data.buckets.shape": "square", "data.buckets.step": 64, "data.crop": "random", "data.flip": 0.0,
        "data.resize": "bilinear", "data.captions.dropout": 0.0, "data.cache.latents": True, "data.cache.text": True,
        "data.cache.crops": 1, "data.batch_size": 16, "data.remainder": "short", "data.workers": 0,
        "objective.min_snr_gamma": None, "objective.min_snr_form": "prediction", "objective.noise_offset": 0.0,
        "objective.timestep_bias.strategy": "none", "objective.timestep_bias.multiplier": 1.0,
        "objective.timestep_bias.begin": 0, "objective.timestep_bias.end": 1000,
        "objective.timestep_bias.portion": 0.25,
        "optim.optimizer.kind": "adamw", "optim.optimizer.betas": [0.9, 0.999], "optim.optimizer.weight_decay": 0.01,
        "optim.optimizer.eps": 1e-8, "optim.lr": 1e-4, "optim.schedule.kind": "constant",
        "optim.schedule.warmup_steps": 0, "optim.schedule.floor": 0.0, "optim.schedule.cycles": 1,
        "optim.schedule.power": 1.0, "optim.accumulation": 1, "optim.clip.norm": 1.0, "optim.clip.scope": "all",
        "optim.ema.rule": "none", "optim.ema.decay": 0.9999, "optim.ema.interval": 1,
        "run.epochs": 100, "run.seed": 0, "run.precision": "fp32", "run.weight_dtype": "fp32",
        "run.frozen_dtype": "fp32", "run.vae_dtype": "fp32", "run.recompute.enabled": False,
        "run.save.every": "500 steps",
        "run.save.keep": None, "run.export.folder": "sdxl-model-finetuned", "run.folder": "sdxl-model-finetuned",
        "run.name": "sdxl-model-finetuned", "run.resume": "never", "run.preview.every": None,
        "run.preview.weights": "raw", "run.tensorboard": True,
        "sample.seed": 0, "sample.steps": 25, "sample.guidance": 5.0,
    }  # fmt: skip


# --- what each flag does ----------------------------------------------------------------------------------------------

ACTS: dict[str, tuple[list[str], dict[str, Any]]] = {
    "pretrained_vae_model_name_or_path": (["--pretrained_vae_model_name_or_path=fixed"], {"model.vae": "fixed"}),
    "resolution": (["--resolution=768"], {"data.resolution": 768}),
    "center_crop": (["--center_crop"], {"data.crop": "center"}),
    "random_flip": (["--random_flip"], {"data.flip": 0.5}),
    "proportion_empty_prompts": (["--proportion_empty_prompts=0.2"], {"data.captions.dropout": 0.2}),
    "timestep_bias_strategy": (
        ["--timestep_bias_strategy=later"], {"objective.timestep_bias.strategy": "later"},
    ),
    "timestep_bias_multiplier": (
        ["--timestep_bias_multiplier=2"], {"objective.timestep_bias.multiplier": 2.0},
    ),
    "timestep_bias_begin": (["--timestep_bias_begin=200"], {"objective.timestep_bias.begin": 200}),
    "timestep_bias_end": (["--timestep_bias_end=500"], {"objective.timestep_bias.end": 500}),
    "timestep_bias_portion": (["--timestep_bias_portion=0.5"], {"objective.timestep_bias.portion": 0.5}),
    "prediction_type": (["--prediction_type=v_prediction"], {"model.prediction": "v"}),
    "output_dir": (
        ["--output_dir=out/xl"], {"run.folder": "out/xl", "run.export.folder": "out/xl", "run.name": "xl"},
    ),
    "mixed_precision": (["--mixed_precision=bf16"], {"run.precision": "bf16", "run.frozen_dtype": "same"}),
    "validation_prompt": (
        ["--validation_prompt=a cat"], {"sample.prompts": ["a cat"] * 4, "run.preview.every": "1 epochs"},
    ),
    "num_validation_images": (
        ["--validation_prompt=a cat", "--num_validation_images=2"],
        {"sample.prompts": ["a cat"] * 2, "run.preview.every": "1 epochs"},
    ),
    "validation_epochs": (
        ["--validation_prompt=a cat", "--validation_epochs=3", "--num_validation_images=1"],
        {"sample.prompts": ["a cat"], "run.preview.every": "3 epochs"},
    ),
    "report_to": (
        ["--report_to=wandb"],
        {"run.tensorboard": False, "run.wandb.mode": "online", "run.wandb.project": "text2image-fine-tune-sdxl"},
    ),
}  # fmt: skip
"""The flags that this script has alone, and those whose defaults or meaning differ."""


def test_every_flag_of_its_own_that_acts_is_shown_acting() -> None:
    shared = {row.flag: row for row in diffusers_sd.DIALECT.rows}
    own = {flag for flag, row in ROWS.items() if row != shared.get(flag) and row.outcome in ("mapped", "computed")}
    assert own <= ACTS.keys()


@pytest.mark.parametrize("flag", ACTS)
def test_a_flag_moves_its_settings_and_no_others(flag: str) -> None:
    words, expected = ACTS[flag]
    assert changed(*words) == expected
    origin = translate(*words).origin
    for path in expected:
        assert origin[path].removeprefix("default of ").startswith("--"), path
    made = foreign.reading("diffusers-sdxl", [*BAREST, *words], (), ALONE)
    assert made.recipe.model.family == "sdxl"


def test_flags_that_both_scripts_have_act_alike() -> None:
    words = [
        "--revision=main", "--dataset_config_name=a", "--image_column=b", "--caption_column=c", "--max_train_samples=9",
        "--cache_dir=d", "--train_batch_size=2", "--dataloader_num_workers=3", "--max_train_steps=7",
        "--gradient_accumulation_steps=3", "--gradient_checkpointing", "--learning_rate=1e-5", "--scale_lr",
        "--lr_scheduler=cosine", "--lr_warmup_steps=2", "--use_8bit_adam", "--adam_beta1=0.8", "--adam_beta2=0.98",
        "--adam_weight_decay=0.1", "--adam_epsilon=1e-6", "--max_grad_norm=2", "--use_ema", "--snr_gamma=5.0",
        "--noise_offset=0.05", "--seed=5", "--mixed_precision=no", "--allow_tf32", "--checkpointing_steps=50",
        "--checkpoints_total_limit=2", "--resume_from_checkpoint=latest", "--output_dir=x", "--resolution=512",
        "--image_interpolation_mode=lanczos", "--center_crop", "--random_flip",
    ]  # fmt: skip
    xl = flat(translate(*words, launched=EIGHT).settings)
    sd = flat(diffusers_sd.DIALECT.translate([*BAREST, *words], EIGHT).settings)
    differ = {path for path in sd.keys() & xl.keys() if sd[path] != xl[path]}
    assert differ == {"model.family", "sample.steps", "sample.guidance"}
    assert sd.keys() - xl.keys() == {"optim.ema.device"}
    assert xl["run.vae_dtype"] == "fp32", "whatever the precision, as there"
    assert xl["optim.lr"] == pytest.approx(1e-5 * 3 * 2 * 8)


@pytest.mark.parametrize("flag", sorted(flag for flag, row in ROWS.items() if row.outcome == "without effect"))
def test_a_flag_without_effect_says_why_and_changes_nothing(flag: str) -> None:
    words = [f"--{flag}"] if ROWS[flag].form == "switch" else [f"--{flag}=3"]
    assert changed(*words) == {}
    assert f"--{flag}: {ROWS[flag].about}" in notes(*words)


@pytest.mark.parametrize("flag", sorted(flag for flag, row in ROWS.items() if row.outcome == "refused"))
def test_a_refused_flag_is_an_error_that_says_why(flag: str) -> None:
    words = [f"--{flag}"] if ROWS[flag].form == "switch" else [f"--{flag}=secret"]
    assert refusal(*words) == [(f"--{flag}", "E1018")]


# --- what needs more than one flag ------------------------------------------------------------------------------------


def test_the_documents_timestep_bias_reads_and_what_it_does_not_look_at_is_told() -> None:
    words = ["--timestep_bias_multiplier", "2", "--timestep_bias_strategy", "range", "--timestep_bias_begin", "200",
             "--timestep_bias_end", "500", "--timestep_bias_portion", "0.25"]  # fmt: skip
    bias = foreign.reading("diffusers-sdxl", [*BAREST, *words], (), ALONE).recipe.objective.timestep_bias
    assert bias.model_dump() == {
        "strategy": "range", "multiplier": 2.0, "begin": 200, "end": 500, "portion": 0.25
    }  # fmt: skip
    told = notes(*words)
    assert "--timestep_bias_portion: not looked at with range" in told
    assert "timestep 500 itself is not preferred" in told
    assert "all timesteps are drawn alike" in notes("--timestep_bias_multiplier=2")
    assert "--timestep_bias_begin: not looked at with earlier" in notes(
        "--timestep_bias_strategy=earlier", "--timestep_bias_begin=3"
    )
    assert "timestep_bias" not in notes("--timestep_bias_strategy=later", "--timestep_bias_portion=0.5")


def test_pictures_are_encoded_once_and_what_is_drawn_of_them_is_told() -> None:
    assert "each with one crop, as there" in notes()
    assert "each with one crop and mirror, as there" in notes("--random_flip")
    assert "each with one mirror, as there" in notes("--center_crop", "--random_flip")
    assert "encoded once" not in notes("--center_crop")


def test_quirks_that_are_not_copied_are_notes_where_they_would_have_shown() -> None:
    told = notes(
        "--use_ema", "--gradient_accumulation_steps=2", "--lr_scheduler=linear", "--proportion_empty_prompts=0.1",
        "--resume_from_checkpoint=latest",
    )  # fmt: skip
    for words in ("in 0.26.3 it never does", "500 optimizer steps, as it is written", "drawn anew at each visit",
                  "counts fully", "goes on exactly"):  # fmt: skip
        assert words in told
    bare = notes("--center_crop")
    assert bare == "--seed: not given; 0 is taken, so that the run can be repeated. Other numbers draw anew"


@pytest.mark.parametrize(
    ("words", "where"),
    [
        (["--prediction_type=sample"], "--prediction_type"),
        (["--proportion_empty_prompts=1.5"], "--proportion_empty_prompts"),
        (["--timestep_bias_strategy=latter"], "--timestep_bias_strategy"),
        (["--timestep_bias_multiplier=0"], "--timestep_bias_multiplier"),
        (["--timestep_bias_begin=-1"], "--timestep_bias_begin"),
        (["--timestep_bias_end=1001"], "--timestep_bias_end"),
        (["--validation_prompt=a", "--num_validation_images=0"], "--num_validation_images"),
        (["--validation_promptz=a"], "--validation_promptz"),
        (["--input_perturbation=0.1"], "--input_perturbation"),
        (["--resolution=1000000"], "--resolution"),
    ],
)
def test_values_that_cannot_be_are_named_by_their_flag(words: list[str], where: str) -> None:
    assert [found for found, _ in refusal(*words)] == [where]


def test_the_other_script_is_refused_and_names_its_dialect() -> None:
    with pytest.raises(RecipeError, match=r"write --as diffusers-sd$"):
        DIALECT.translate(["python", "train_text_to_image.py", *BAREST], ALONE)
    with pytest.raises(RecipeError, match=r"write --as diffusers-sdxl$"):
        diffusers_sd.DIALECT.translate(["python", "train_text_to_image_sdxl.py", *BAREST], ALONE)
    with pytest.raises(RecipeError, match="torchrun --nproc-per-node 4 -m mezzotint train --as diffusers-sdxl -- "):
        DIALECT.translate(
            ["accelerate", "launch", "--multi_gpu", "--num_processes=4", "train_text_to_image_sdxl.py", *BAREST], ALONE
        )
