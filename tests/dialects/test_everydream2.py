"""The dialect `everydream2`: every option has its row, its default is the documented one, and where it acts it moves
the setting that it should, and no other. Its files of settings: test_everydream2_files.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mezzotint.dialects.base import Launched, Row, Translation
from mezzotint.dialects.everydream2._dialect import DIALECT
from mezzotint.errors import CODES, RecipeError
from mezzotint.recipe.counting import counted
from mezzotint.recipe.reading.paths import by_path, owner, sections
from mezzotint.tasks.reading import foreign

BAREST = ("--resume_ckpt=sd15",)
ALONE = Launched()
ROWS = {row.flag: row for row in DIALECT.rows}
PATH = "logs/myproj-{stamp}"

DOCUMENTED: dict[str, Any] = {
    # the reference's settings with their defaults; loss_type as the decision page has it
    "config": None, "amp": True, "attn_type": "sdp", "batch_size": 2, "ckpt_every_n_minutes": None,
    "clip_grad_norm": None, "clip_skip": 0, "cond_dropout": 0.04, "data_root": "input", "disable_amp": False,
    "disable_textenc_training": False, "disable_unet_training": False, "embedding_perturbation": 0.0, "flip_p": 0.0,
    "gpuid": 0, "gradient_checkpointing": False, "grad_accum": 1, "logdir": "logs", "log_step": 25, "loss_type": "mse",
    "lr": None, "lr_decay_steps": 0, "lr_scheduler": "constant", "lr_warmup_steps": None, "max_epochs": 300,
    "no_prepend_last": False, "no_save_ckpt": False, "optimizer_config": "optimizer.json", "plugins": None,
    "project_name": "myproj", "resolution": 512, "resume_ckpt": "sd_v1-5_vae.ckpt", "run_name": None,
    "sample_prompts": "sample_prompts.txt", "sample_steps": 250, "save_ckpt_dir": None, "save_every_n_epochs": None,
    "save_ckpts_from_n_epochs": 0, "save_full_precision": False, "save_optimizer": False, "seed": 555,
    "shuffle_tags": False, "keep_tags": 0, "timestep_start": 0, "timestep_end": 1000, "train_sampler": "ddpm",
    "wandb": False, "validation_config": None, "write_schedule": False, "rated_dataset": False,
    "rated_dataset_target_dropout_percent": 50, "rated_dataset_target_dropout_rate": None,
    "zero_frequency_noise_ratio": 0.02, "enable_zero_terminal_snr": False,
    "load_settings_every_epoch": False, "min_snr_gamma": None, "pyramid_noise_discount": None, "ema_decay_rate": None,
    "ema_strength_target": None, "ema_update_interval": 500, "ema_device": "cpu", "ema_sample_nonema_model": False,
    "ema_sample_ema_model": False, "ema_resume_model": None,
    # named in its files without effect, or gone, or old names
    "notebook": False, "lowvram": False, "disable_xformers": False, "useadam8bit": False, "ed1_mode": False,
    "scale_lr": False, "hf_repo_subfolder": None, "ema_decay_target": None, "ema_decay_interval": None,
    "ema_decay_device": None, "ema_decay_sample_raw_training": False, "ema_decay_sample_ema_model": False,
    "ema_decay_resume_model": None,
}  # fmt: skip

EXPECTED: dict[str, Any] = {
    "schema": 1,
    "model.path": "sd15", "model.family": "sd", "model.train": ["denoiser", "text_encoder"], "model.clip_skip": 0,
    "model.attention": "auto",
    "data.path": ["input"], "data.format": "everydream", "data.resolution": 512, "data.buckets.shape": "table",
    "data.batch_size": 2, "data.remainder": "repeat", "data.discount": 1.5, "data.crop": "triangular",
    "data.jitter": 0.02, "data.resize": "bicubic", "data.flip": 0.0, "data.epoch_seed": "add",
    "data.captions.dropout": 0.04, "data.captions.shuffle_tags": False, "data.captions.keep_tags": 0,
    "objective.loss": "mse", "objective.huber_delta": 1.0, "objective.noise_offset": 0.02,
    "objective.pyramid_discount": 0.0, "objective.embedding_perturbation": 0.0, "objective.zero_terminal_snr": False,
    "objective.min_snr_gamma": None, "objective.min_snr_form": "ratio", "objective.timesteps": [0, 1000],
    "optim.lr": 1e-6, "optim.part_lr.text_encoder": 5e-7, "optim.lr_batch_power": 0.0,
    "optim.optimizer.kind": "adamw-8bit-or-adamw", "optim.optimizer.betas": [0.9, 0.999], "optim.optimizer.eps": 1e-8,
    "optim.optimizer.weight_decay": 0.01, "optim.schedule.kind": "constant", "optim.schedule.warmup_steps": 0,
    "optim.schedule.warmup_share": 0.0, "optim.schedule.beyond": "floor", "optim.schedule.floor": 0.0,
    "optim.accumulation": 1, "optim.clip.norm": None, "optim.clip.scope": "part", "optim.ema.rule": "none",
    "run.name": "myproj", "run.folder": PATH, "run.epochs": 300, "run.seed": 555, "run.resume": "never",
    "run.precision": "fp16", "run.weight_dtype": "fp32", "run.frozen_dtype": "same", "run.tf32": True,
    "run.recompute.enabled": False, "run.scaler.init": 2**17.5, "run.scaler.growth": 2.0,
    "run.scaler.growth_interval": 25, "run.scaler.stages": [
        [500, 1.8, 100], [1000, 1.6, 200], [2000, 1.3, 500], [4000, 1.15, 2000]],
    "run.log_every": 25, "run.tensorboard": True, "run.schedule_file": False,
    "run.save.every": ["20 minutes"], "run.export.every": ["20 minutes"], "run.export.from_epoch": 0,
    "run.export.name": "{last}{name}-ep{epoch:02}-gs{micro_step:05}{ema}", "run.export.link": "ckpts",
    "run.export.when_stopped": True, "run.export.single_file": True,
    "run.export.single_file_dtype": "fp16", "run.export.single_file_folder": ".",
    "run.preview.every": "250 steps", "run.preview.weights": "raw", "run.validation.every": None,
    "sample.seed": 555, "sample.steps": 30, "sample.guidance": [7.0, 4.0, 1.01], "sample.solver": "ddim",
    "sample.guidance_rescale": 0.0, "sample.batch_size": 1,
}  # fmt: skip


@pytest.fixture(autouse=True)
def _nothing_lies_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def translate(*words: str, launched: Launched = ALONE) -> Translation:
    return DIALECT.translate([*BAREST, *words], launched)


def flat(tree: Any, prefix: str = "") -> dict[str, Any]:
    """Settings by dotted path."""
    if not isinstance(tree, dict):
        return {prefix[:-1]: tree}
    return {path: value for key, inner in tree.items() for path, value in flat(inner, f"{prefix}{key}.").items()}


def changed(*words: str) -> dict[str, Any]:
    """What a line sets otherwise than the barest one does; "gone" for what it leaves out."""
    before, after = flat(translate().settings), flat(translate(*words).settings)
    gone = dict.fromkeys(before.keys() - after.keys(), "gone")
    return {path: value for path, value in after.items() if before.get(path, "absent") != value} | gone


def notes(*words: str) -> list[str]:
    return [str(note) for note in translate(*words).notes]


def refusal(*words: str) -> list[tuple[str, str]]:
    with pytest.raises(RecipeError) as caught:
        translate(*words)
    assert caught.value.exit_status == 2
    return [(problem.where, problem.code) for problem in caught.value.problems]


# --- the table --------------------------------------------------------------------------------------------------------


def test_every_option_has_one_row_with_its_documented_default() -> None:
    assert len(ROWS) == len(DIALECT.rows)
    assert {flag: row.default for flag, row in ROWS.items()} == DOCUMENTED


def everything() -> list[Row]:
    return [*DIALECT.rows, *(row for table in DIALECT.tables for row in table.rows)]


@pytest.mark.parametrize("row", everything(), ids=lambda row: row.flag)
def test_every_row_names_settings_that_are_there_and_says_something(row: Row) -> None:
    assert row.about
    assert bool(row.to) == (row.outcome in ("mapped", "computed"))
    for path in row.to:
        assert owner(path) is not None, path
    assert row.outcome != "mapped" or len(row.to) == 1


def test_the_barest_line_equals_the_documented_defaults() -> None:
    assert flat(translate().settings) == EXPECTED


def test_what_the_trainer_leaves_out_is_left_out_by_the_recipe_s_own_defaults() -> None:
    recipe = foreign.reading("everydream2", BAREST, (), ALONE).recipe
    assert (recipe.data.cache.latents, recipe.data.cache.text) == (False, False)
    assert (recipe.data.repeats, recipe.data.rating.share, recipe.data.small) == ((1.0,), None, "upscale")
    assert (recipe.data.holdout.share, recipe.data.holdout.path) == (0.0, {})
    assert (recipe.model.last_layers, recipe.model.freeze, recipe.model.prediction) == (None, (), None)
    assert (recipe.objective.input_perturbation, recipe.run.steps, recipe.run.live.path) == (0.0, None, None)
    assert (recipe.sample.file, recipe.sample.prompts, recipe.sample.size) == (None, (), None)


# --- what each flag does ----------------------------------------------------------------------------------------------

EMA = {"optim.ema.rule": "constant", "optim.ema.interval": 500, "optim.ema.device": "cpu"}
SHADOW = EMA | {"run.preview.weights": "ema"}
RATE = {"optim.ema.decay": 0.99}
ON = "--ema_decay_rate=0.99"
FILE = "--config=train.json"
COSINE = {
    "optim.schedule.kind": "cosine", "optim.schedule.warmup_share": 0.02, "optim.schedule.decay_of_run": 1.5,
    "optim.schedule.beyond": "wave",
}  # fmt: skip
TEXT = {"optim.part_lr.text_encoder": "gone"}

ACTS: dict[str, tuple[list[str], dict[str, Any]]] = {
    "config": (
        [FILE, "--load_settings_every_epoch"],
        {"run.live.path": "train.json", "run.live.dialect": "everydream2",
         "run.live.line": [*BAREST, FILE, "--load_settings_every_epoch"]},
    ),
    "load_settings_every_epoch": (["--load_settings_every_epoch"], {}),
    "data_root": (["--data_root=my pictures"], {"data.path": ["my pictures"]}),
    "resolution": (["--resolution=768"], {"data.resolution": 768}),
    "batch_size": (["--batch_size=6"], {"data.batch_size": 6, "sample.batch_size": 3}),
    "flip_p": (["--flip_p=0.5"], {"data.flip": 0.5}),
    "cond_dropout": (["--cond_dropout", "0.1"], {"data.captions.dropout": 0.1}),
    "shuffle_tags": (["--shuffle_tags"], {"data.captions.shuffle_tags": True}),
    "keep_tags": (["--shuffle_tags", "--keep_tags=4"],
                  {"data.captions.shuffle_tags": True, "data.captions.keep_tags": 4}),
    "rated_dataset": (["--rated_dataset", "--max_epochs=10"],
                      {"data.rating.share": 0.5, "data.rating.epochs": 10, "run.epochs": 10}),
    "rated_dataset_target_dropout_percent": (
        ["--rated_dataset", "--rated_dataset_target_dropout_percent=30"],
        {"data.rating.share": 0.3, "data.rating.epochs": 300}),
    "rated_dataset_target_dropout_rate": (
        ["--rated_dataset", "--rated_dataset_target_dropout_rate=30"],
        {"data.rating.share": 0.3, "data.rating.epochs": 300}),
    "validation_config": (["--validation_config=none.json"], {"run.validation.every": "1 epochs",
                          "data.holdout.max_samples": 1_000_000, "data.holdout.share": 0.15}),
    "write_schedule": (["--write_schedule"], {"run.schedule_file": True, "run.schedule_place": "run"}),
    "wandb": (["--wandb"], {"run.wandb.mode": "online", "run.wandb.project": "myproj"}),
    "resume_ckpt": (["--resume_ckpt=findlast"], {"model.path": PATH, "run.resume": "latest"}),
    "clip_skip": (["--clip_skip=2"], {"model.clip_skip": 1}),
    "attn_type": (["--attn_type=xformers"], {"model.attention": "xformers"}),
    "disable_textenc_training": (["--disable_textenc_training"], {"model.train": ["denoiser"], **TEXT}),
    "disable_unet_training": (
        ["--disable_unet_training"],
        {"model.train": ["text_encoder"], "optim.lr": 5e-7, **TEXT}),
    "gradient_checkpointing": (["--gradient_checkpointing"], {"run.recompute.enabled": True}),
    "loss_type": (["--loss_type=mse_huber"], {"objective.loss": "mse-huber"}),
    "min_snr_gamma": (["--min_snr_gamma=5"], {"objective.min_snr_gamma": 5.0}),
    "zero_frequency_noise_ratio": (["--zero_frequency_noise_ratio=0.1"], {"objective.noise_offset": 0.1}),
    "enable_zero_terminal_snr": (["--enable_zero_terminal_snr"],
                                 {"objective.zero_terminal_snr": True, "sample.guidance_rescale": 0.7}),
    "pyramid_noise_discount": (["--pyramid_noise_discount=0.03"], {"objective.pyramid_discount": 0.03}),
    "embedding_perturbation": (["--embedding_perturbation=0.1"], {"objective.embedding_perturbation": 0.1}),
    "timestep_start": (["--timestep_start=100"], {"objective.timesteps": [100, 1000]}),
    "timestep_end": (["--timestep_end=900"], {"objective.timesteps": [0, 900]}),
    "lr": (["--lr=3e-6"], {"optim.lr": 3e-6, "optim.part_lr.text_encoder": "gone"}),
    "lr_scheduler": (["--lr_scheduler=cosine"], COSINE),
    "lr_warmup_steps": (["--lr_scheduler=cosine", "--lr_warmup_steps=9"],
                        {k: v for k, v in COSINE.items() if k != "optim.schedule.warmup_share"}
                        | {"optim.schedule.warmup_steps": 9}),
    "lr_decay_steps": (["--lr_scheduler=cosine", "--lr_decay_steps=2500"],
                       {k: v for k, v in COSINE.items() if k != "optim.schedule.decay_of_run"}
                       | {"optim.schedule.decay_steps": 2500}),
    "scale_lr": (["--scale_lr"], {"optim.lr_batch_power": 0.55}),
    "optimizer_config": (["--optimizer_config=adamw.json"], {"optim.optimizer.kind": "adamw", **TEXT}),
    "grad_accum": (
        ["--grad_accum=4"],
        {"optim.accumulation": 4, "run.log_every": 7, "run.preview.every": "63 steps", "run.scaler.stages": [
            [125, 1.8, 100], [250, 1.6, 200], [500, 1.3, 500], [1000, 1.15, 2000]]}),
    "clip_grad_norm": (["--clip_grad_norm=1.0"], {"optim.clip.norm": 1.0}),
    "ema_decay_rate": ([ON], SHADOW | RATE),
    "ema_strength_target": (["--ema_strength_target=0.1"], SHADOW | {"optim.ema.strength": 0.1}),
    "ema_update_interval": ([ON, "--ema_update_interval=50"], SHADOW | RATE | {"optim.ema.interval": 50}),
    "ema_device": ([ON, "--ema_device=cuda"], SHADOW | RATE | {"optim.ema.device": "same"}),
    "ema_sample_nonema_model": ([ON, "--ema_sample_nonema_model"], EMA | RATE),
    "ema_sample_ema_model": ([ON, "--ema_sample_nonema_model", "--ema_sample_ema_model"],
                             EMA | RATE | {"run.preview.weights": "both"}),
    "ema_resume_model": ([ON, "--ema_resume_model=m_ema"], SHADOW | RATE | {"optim.ema.start": "m_ema"}),
    "ema_decay_target": (["--ema_decay_target=0.1"], SHADOW | {"optim.ema.strength": 0.1}),
    "ema_decay_interval": ([ON, "--ema_decay_interval=50"], SHADOW | RATE | {"optim.ema.interval": 50}),
    "ema_decay_device": ([ON, "--ema_decay_device=cuda"], SHADOW | RATE | {"optim.ema.device": "same"}),
    "ema_decay_resume_model": ([ON, "--ema_decay_resume_model=findlast"],
                               SHADOW | RATE | {"optim.ema.start": PATH}),
    "ema_decay_sample_raw_training": ([ON, "--ema_decay_sample_raw_training"], EMA | RATE),
    "ema_decay_sample_ema_model": ([ON, "--ema_decay_sample_ema_model"], SHADOW | RATE),
    "project_name": (["--project_name=my fox"], {"run.name": "my-fox", "run.folder": "logs/my-fox-{stamp}"}),
    "logdir": (["--logdir=/disk/mylogs/"], {"run.folder": "/disk/mylogs/myproj-{stamp}"}),
    "max_epochs": (["--max_epochs=30"], {"run.epochs": 30}),
    "seed": (["--seed=-1"], {"run.seed": -1, "sample.seed": -1}),
    "disable_amp": (["--disable_amp"], {"run.precision": "fp32"}),
    "ckpt_every_n_minutes": (["--ckpt_every_n_minutes=30"],
                             {"run.save.every": ["30 minutes"], "run.export.every": ["30 minutes"]}),
    "save_every_n_epochs": (["--save_every_n_epochs=5"],
                            {"run.save.every": ["5 epochs"], "run.export.every": ["5 epochs"]}),
    "save_ckpts_from_n_epochs": (["--save_ckpts_from_n_epochs=10"], {"run.export.from_epoch": 10}),
    "save_full_precision": (["--save_full_precision"], {"run.export.single_file_dtype": "fp32"}),
    "save_ckpt_dir": ([r"--save_ckpt_dir=r:\webui\models"], {"run.export.single_file_folder": r"r:\webui\models"}),
    "no_save_ckpt": (["--no_save_ckpt"], {"run.export.single_file": False}),
    "no_prepend_last": (["--no_prepend_last"], {"run.export.name": "{name}-ep{epoch:02}-gs{micro_step:05}{ema}"}),
    "log_step": (["--log_step=50"], {"run.log_every": 50}),
    "sample_steps": (["--sample_steps=100"], {"run.preview.every": "100 steps"}),
    "sample_prompts": (["--sample_prompts=my.json"], {"sample.file": "my.json"}),
}  # fmt: skip
FILES = {"train.json": "{}", "none.json": "{}", "adamw.json": '{"base": {"optimizer": "adamw"}}'}


@pytest.fixture
def files() -> None:
    for name, text in FILES.items():
        Path(name).write_text(text)


def test_every_flag_that_acts_is_shown_acting() -> None:
    assert set(ACTS) == {flag for flag, row in ROWS.items() if row.outcome in ("mapped", "computed")}


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize("flag", ACTS)
def test_a_flag_moves_its_settings_and_no_others(flag: str) -> None:
    words, expected = ACTS[flag]
    assert changed(*words) == expected
    origin = translate(*words).origin
    for path, value in expected.items():
        assert value == "gone" or "--" in origin[path] or " in " in origin[path], path


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize("flag", ACTS)
def test_what_a_flag_says_is_a_recipe_that_reads_back(flag: str) -> None:
    words, _ = ACTS[flag]
    found = translate(*words)
    made = foreign.reading("everydream2", [*BAREST, *words], (), ALONE).recipe.model_dump(mode="json", by_alias=True)
    recipe = flat(made)
    for path, value in flat(found.settings).items():
        read = recipe[path]
        wanted = value.replace("1 epochs", "1 epoch") if isinstance(value, str) else value
        assert read in (wanted, [wanted]), path


@pytest.mark.parametrize("flag", sorted(flag for flag, row in ROWS.items() if row.outcome == "without effect"))
def test_a_flag_without_effect_says_why_and_changes_nothing(flag: str) -> None:
    row = ROWS[flag]
    other = not row.default if row.form == "switch" else row.choices[-1] if row.choices else "x"
    words = [f"--{flag}={other}"]
    assert changed(*words) == {}
    assert [note for note in notes(*words) if note.startswith(f"--{flag}: ")] == [f"--{flag}: {row.about}"]
    assert not any(note.startswith(f"--{flag}: ") for note in notes())


@pytest.mark.parametrize("flag", sorted(flag for flag, row in ROWS.items() if row.outcome == "refused"))
def test_a_refused_flag_is_an_error_that_says_why(flag: str) -> None:
    words = [f"--{flag}"] if ROWS[flag].form == "switch" else [f"--{flag}=1"]
    with pytest.raises(RecipeError) as caught:
        translate(*words)
    assert [(p.where, p.code, p.what) for p in caught.value.problems] == [(f"--{flag}", "E1018", ROWS[flag].about)]


# --- what needs more than one flag ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("given", "ours"), [(0, 0), (1, 0), (2, 1), (3, 2), (4, 3)])
def test_clip_skip_counts_the_last_layer_as_one(given: int, ours: int) -> None:
    assert flat(translate(f"--clip_skip={given}").settings)["model.clip_skip"] == ours


def test_minus_one_is_zero_terminal_snr_and_a_ratio_stays_beside_the_switch() -> None:
    minus = {"objective.noise_offset": 0.0, "objective.zero_terminal_snr": True, "sample.guidance_rescale": 0.7}
    assert changed("--zero_frequency_noise_ratio=-1") == minus
    assert changed("--zero_frequency_noise_ratio", "-1") == minus
    both = changed("--enable_zero_terminal_snr", "--zero_frequency_noise_ratio=0.05")
    assert (both["objective.noise_offset"], both["objective.zero_terminal_snr"]) == (0.05, True)
    assert any("models that predict v" in note for note in notes("--zero_frequency_noise_ratio=-1"))
    assert changed("--zero_frequency_noise_ratio=-0.5") == {"objective.noise_offset": 0.0}
    assert any("-1 alone is zero terminal SNR" in note for note in notes("--zero_frequency_noise_ratio=-0.5"))


@pytest.mark.parametrize(
    ("words", "every"),
    [
        ([], ["20 minutes"]),
        (["--save_every_n_epochs=3", "--ckpt_every_n_minutes=7"], ["3 epochs", "7 minutes"]),
        (["--save_every_n_epochs=0"], []),
        (["--ckpt_every_n_minutes=0"], []),
        (["--save_every_n_epochs=0", "--ckpt_every_n_minutes=9"], ["9 minutes"]),
    ],
)
def test_saves_go_by_epoch_and_by_minutes(words: list[str], every: list[str]) -> None:
    found = flat(translate(*words).settings)
    assert found["run.save.every"] == found["run.export.every"] == every


@pytest.mark.parametrize(("batches", "accumulation", "steps"), [(2500, 2, 1250), (2501, 2, 1251), (1, 3, 1), (9, 3, 3)])
def test_counts_of_batches_are_divided_by_the_accumulation_and_rounded_up(
    batches: int, accumulation: int, steps: int
) -> None:
    words = ["--lr_scheduler=linear", f"--lr_decay_steps={batches}", f"--grad_accum={accumulation}",
             "--lr_warmup_steps=0", f"--log_step={batches}"]  # fmt: skip
    found = flat(translate(*words).settings)
    assert (found["optim.schedule.decay_steps"], found["run.log_every"]) == (steps, steps)
    told = f"{counted(batches, 'batch')}, here {counted(steps, 'step')} of {counted(accumulation, 'batch')}"
    assert {f"--lr_decay_steps: {told}", *([f"--log_step: {told}"] if batches > 1 else [])} <= set(notes(*words))


def test_polynomial_ends_at_the_same_rate_whatever_the_peak() -> None:
    for words, peak in (([], 2e-6), (["--scale_lr", "--batch_size=4", "--grad_accum=2"], 2e-6 * 8**0.55)):
        found = flat(translate("--lr_scheduler=polynomial", "--lr=2e-6", *words).settings)
        assert found["optim.schedule.floor"] * peak == pytest.approx(1e-7)
        assert found["optim.schedule.power"] == 1.0


def test_what_acts_together_alone_is_told_of() -> None:
    told = " ".join(
        notes("--keep_tags=4", "--ema_device=cuda", "--rated_dataset_target_dropout_percent=20",
              "--load_settings_every_epoch", "--cond_dropout=0.3", "--grad_accum=2", "--save_every_n_epochs=1",
              "--ckpt_every_n_minutes=5", "--resolution=700")
    )  # fmt: skip
    for words in ("captions that are shuffled", "there is no average", "ratings are not looked at",
                  "without --config there is no file", "bleeds", "averaged over its batches", "both save",
                  "rounded down to 640"):  # fmt: skip
        assert words in told
    assert set(notes()) == {
        "--resume_ckpt: a new run begins from it; a run folder of Mezzotint would be gone on with",
        "--sample_prompts: there is no sample_prompts.txt here: captions of the data set are drawn",
    }


def test_an_old_spelling_is_told_what_it_is_called_now_and_the_new_one_counts() -> None:
    assert "--ema_decay_interval: is called ema_update_interval now" in notes(ON, "--ema_decay_interval=7")
    words = (ON, "--ema_decay_interval=7", "--ema_update_interval=9")
    assert flat(translate(*words).settings)["optim.ema.interval"] == 9
    assert any("which is given and counts" in note for note in notes(*words))


def test_findlast_of_both_models_goes_on_with_one_run() -> None:
    found = changed(ON, "--resume_ckpt=findlast", "--ema_resume_model=findlast")
    assert (found["model.path"], found["run.resume"], "optim.ema.start" in found) == (PATH, "latest", False)


@pytest.mark.parametrize(
    ("words", "where", "code"),
    [
        (["--clip_skip=9"], "--clip_skip", "E1017"),
        (["--clip_skip=-1"], "--clip_skip", "E1017"),
        (["--ema_device=gpu", ON], "--ema_device", "E1017"),
        (["--attn_type=sdpa"], "--attn_type", "E1017"),
        (["--loss_type=l1"], "--loss_type", "E1017"),
        (["--resolution=128"], "--resolution", "E1017"),
        (["--resolution=1216"], "--resolution", "E1017"),
        (["--batch_size=0"], "--batch_size", "E1017"),
        (["--grad_accum=0"], "--grad_accum", "E1017"),
        (["--max_epochs=0"], "--max_epochs", "E1017"),
        (["--seed=-2"], "--seed", "E1017"),
        (["--keep_tags=-1"], "--keep_tags", "E1017"),
        (["--log_step=0"], "--log_step", "E1017"),
        (["--sample_steps=0"], "--sample_steps", "E1017"),
        (["--clip_grad_norm=0"], "--clip_grad_norm", "E1017"),
        (["--lr_scheduler=cosine", "--lr_warmup_steps=-1"], "--lr_warmup_steps", "E1017"),
        (["--lr_scheduler=cosine", "--lr_warmup_steps=9", "--lr_decay_steps=9"], "--lr_decay_steps", "E1017"),
        (["--lr_scheduler=polynomial", "--lr=1e-8"], "--lr", "E1017"),
        (["--disable_unet_training", "--disable_textenc_training"], "--disable_unet_training", "E1018"),
        (["--zero_freq=1"], "--zero_frequency_noise_ratio", ""),
        (["--ema_decay=1"], "--ema_decay", "E1016"),
        (["--learning_rate=1"], "--learning_rate", "E1016"),
    ],
)
def test_values_that_cannot_be_are_named_by_their_flag(words: list[str], where: str, code: str) -> None:
    if not code:  # an abbreviation of one flag alone
        assert any(note == f"{where}: written --zero_freq" for note in notes(*words))
        return
    [(found, said)] = refusal(*words)
    assert (found, said, code in CODES) == (where, code, True)


@pytest.mark.parametrize(
    ("words", "where"),
    [
        (["--ema_decay_rate=1.5"], "--ema_decay_rate"),
        (["--ema_strength_target=1"], "--ema_strength_target"),
        ([ON, "--ema_update_interval=0"], "--ema_update_interval"),
        (["--flip_p=2"], "--flip_p"),
        (["--cond_dropout=-1"], "--cond_dropout"),
        (["--min_snr_gamma=0"], "--min_snr_gamma"),
        (["--pyramid_noise_discount=1"], "--pyramid_noise_discount"),
        (["--lr=-1"], "--lr"),
    ],
)
def test_what_the_recipe_refuses_is_told_in_the_words_of_the_line(words: list[str], where: str) -> None:
    with pytest.raises(RecipeError) as caught:
        foreign.reading("everydream2", [*BAREST, *words], (), ALONE)
    assert [problem.where for problem in caught.value.problems] == [where]
    assert str(caught.value).startswith("the line of everydream2 has 1 problem\n  given  --")


def test_a_line_of_the_windows_shell_and_one_of_a_unix_shell_are_read_as_they_are_pasted() -> None:
    caret = ["python", "train.py", "--resume_ckpt", "sd15", "^", "--lr", "2e-6", "^", "--data_root", r"X:\my data", "^"]
    slash = ["python", "train.py", "--resume_ckpt", "sd15", "\\", "--lr=2e-6", "\\", "--data_root", r"X:\my data"]
    assert DIALECT.translate(caret, ALONE).settings == DIALECT.translate(slash, ALONE).settings
    assert flat(DIALECT.translate(caret, ALONE).settings)["data.path"] == [r"X:\my data"]
    [told] = [note for note in notes(r"--save_ckpt_dir=r:\webui\models") if note.startswith("--save_ckpt_dir")]
    assert told.endswith("is a path of Windows: here it is a folder of that name in the current one")


def test_settings_laid_over_a_line_are_kept_from_the_file_that_is_read_at_each_epoch() -> None:
    Path("train.json").write_text('{"load_settings_every_epoch": true}')
    made = foreign.reading("everydream2", [*BAREST, FILE], ["objective.noise_offset=0.07"], ALONE)
    assert made.recipe.run.live.fixed == ("objective.noise_offset",)
    assert set(made.origin) <= {*by_path(), *sections()} | {p for p in made.origin if ".text_encoder" in p}


def test_a_script_that_starts_several_trainings_is_refused_by_name() -> None:
    with pytest.raises(RecipeError, match=r"chain\.py starts several of them.*as --resume_ckpt") as caught:
        DIALECT.translate(["python", "chain.py", "--config", "chain.json"], ALONE)
    assert caught.value.code == "E1018"
