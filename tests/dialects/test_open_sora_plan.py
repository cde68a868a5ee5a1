"""The dialect `open-sora-plan`: every option has its row with the documented default, and where it acts it moves the
setting that it should, and no other."""

from __future__ import annotations

from typing import Any

import pytest

from mezzotint.dialects.base import Launched, Row, Translation
from mezzotint.dialects.open_sora_plan._dialect import DIALECT
from mezzotint.dialects.open_sora_plan._rows import DOCUMENTED, OUTSIDE
from mezzotint.errors import RecipeError
from mezzotint.recipe.reading.paths import owner
from mezzotint.tasks.reading import foreign

BAREST = ("--video_data=clips.txt",)
ALONE, FOUR = Launched(), Launched(processes=4, launcher="torchrun")
ROWS = {row.flag: row for row in DIALECT.rows}

DEFAULTS: dict[str, Any] = {
    # the document's, in its order
    "image_data": None, "video_data": None, "max_image_size": 512, "num_frames": 17, "use_img_from_vid": False,
    "use_image_num": 0, "text_embed_cache": True, "enable_flip": False, "model_max_length": 300,
    "filter_nonexistent": True, "pretrained": None, "text_encoder_name": "DeepFloyd/t5-v1_1-xxl",
    "ae": "CausalVAEModel_4x8x8", "ae_path": "LanguageBind/Open-Sora-Plan-v1.1.0", "dataset": "t2v",
    "use_rope": False, "compress_kv": False, "compress_kv_factor": 1, "model": "LatteT2V-XL/122", "multi_scale": False,
    "enable_tiling": False, "tile_overlap_factor": 0.25, "use_recompute": False, "num_no_recompute": 0,
    "precision": "bf16", "amp_level": "O1", "text_encoder_precision": "bf16", "vae_precision": "fp16",
    "vae_keep_gn_fp32": False, "loss_scaler_type": "dynamic", "loss_scale_factor": 2, "scale_window": 2000,
    "init_loss_scale": 65536, "dataset_sink_mode": False, "sink_size": -1, "dataloader_num_workers": 4,
    "max_rowsize": 4, "batch_size": 32, "dataloader_prefetch_size": None, "optim": "adamw", "betas": (0.9, 0.999),
    "optim_eps": 1e-8, "group_strategy": "norm_and_bias", "clip_grad": False, "max_grad_norm": 1.0, "use_ema": True,
    "ema_decay": 0.9999, "gradient_accumulation_steps": 1, "weight_decay": 0.01, "lr_scheduler": "cosine_decay",
    "start_learning_rate": 1e-5, "end_learning_rate": 1e-6, "lr_warmup_steps": 0, "lr_decay_steps": 0,
    "scale_lr": False, "device": "Ascend", "max_device_memory": None, "mode": 0, "use_parallel": False,
    "parallel_mode": "data", "seed": 3407, "mempool_block_size": "9GB", "optimizer_weight_shard_size": 8,
    "max_train_steps": None, "epochs": 10, "step_mode": False, "resume_from_checkpoint": "False",
    "ckpt_save_interval": 1, "checkpointing_steps": None, "ckpt_max_keep": 10, "log_level": "logging.INFO",
    "log_interval": 1, "profile": False,
}  # fmt: skip

EXPECTED: dict[str, Any] = {
    "schema": 1,
    "model.family": "latte", "model.train": ["denoiser"], "model.path": "latte-17f", "model.weights": "random",
    "model.vae": "LanguageBind/Open-Sora-Plan-v1.1.0", "model.max_tokens": 300, "model.latte.rope": False,
    "model.latte.compress_kv": 1, "model.latte.video_length": 5, "model.latte.tiling.enabled": False,
    "model.latte.tiling.overlap": 0.25, "model.latte.vae_norms": "same",
    "data.format": "clip-list", "data.path": ["clips.txt"], "data.clips.frames": 17, "data.clips.missing": "skip",
    "data.clips.stills": 0, "data.clips.texts": True, "data.cache.text": True, "data.captions.clean": True,
    "data.captions.dropout": 0.0, "data.resolution": 512, "data.buckets.shape": "square", "data.buckets.step": 64,
    "data.resize": "open-sora-plan", "data.flip": 0.0, "data.batch_size": 32, "data.remainder": "drop",
    "data.workers": 4,
    "optim.optimizer.kind": "adamw", "optim.optimizer.betas": [0.9, 0.999], "optim.optimizer.eps": 1e-8,
    "optim.optimizer.weight_decay": 0.01, "optim.optimizer.no_decay": ["@norm-and-bias"], "optim.lr": 1e-5,
    "optim.schedule.kind": "cosine", "optim.schedule.floor": pytest.approx(0.1), "optim.schedule.warmup_steps": 0,
    "optim.accumulation": 1, "optim.clip.norm": None, "optim.clip.scope": "all", "optim.ema.rule": "saturating",
    "optim.ema.decay": 0.9999,
    "run.epochs": 10, "run.seed": 3407, "run.precision": "bf16", "run.half": "products", "run.weight_dtype": "fp32",
    "run.frozen_dtype": "bf16", "run.vae_dtype": "fp16", "run.scaler.kind": "dynamic", "run.scaler.init": 65536,
    "run.scaler.growth": 2.0, "run.scaler.growth_interval": 2000, "run.device": "auto", "run.device_memory": None,
    "run.device_prefetch": 0, "run.compile": True, "run.runtime": "auto", "run.recompute.enabled": False,
    "run.recompute.exempt_last": 0, "run.save.every": "1 epoch", "run.save.keep": 10, "run.log_every": 1,
    "run.preview.every": None, "run.resume": "never", "run.folder": "output", "run.name": "output",
    "run.export.link": "ckpt",
    "sample.seed": 3407,
}  # fmt: skip


def translate(*words: str, launched: Launched = ALONE) -> Translation:
    return DIALECT.translate([*BAREST, *words], launched)


def flat(tree: Any, prefix: str = "") -> dict[str, Any]:
    """Settings by dotted path."""
    if not isinstance(tree, dict):
        return {prefix[:-1]: tree}
    return {path: value for key, inner in tree.items() for path, value in flat(inner, f"{prefix}{key}.").items()}


def changed(*words: str, launched: Launched = ALONE, beside: tuple[str, ...] = ()) -> dict[str, Any]:
    """What a line sets otherwise than the one without `words` does; "gone" for what it leaves out."""
    before, after = (flat(translate(*w, launched=launched).settings) for w in (beside, (*beside, *words)))
    gone = dict.fromkeys(before.keys() - after.keys(), "gone")
    return {path: value for path, value in after.items() if before.get(path, "absent") != value} | gone


def notes(*words: str, launched: Launched = ALONE) -> list[str]:
    return [str(note) for note in translate(*words, launched=launched).notes]


def refusal(*words: str, launched: Launched = ALONE) -> list[tuple[str, str]]:
    with pytest.raises(RecipeError) as caught:
        translate(*words, launched=launched)
    assert caught.value.exit_status == 2
    return [(problem.where, problem.code) for problem in caught.value.problems]


# --- the table --------------------------------------------------------------------------------------------------------


def test_every_documented_option_has_one_row_with_its_default() -> None:
    assert len(ROWS) == len(DIALECT.rows)
    assert len(DEFAULTS) == DOCUMENTED == 73
    outside = {row.flag for row in OUTSIDE}
    assert {flag: row.default for flag, row in ROWS.items() if flag not in outside} == DEFAULTS


@pytest.mark.parametrize("row", DIALECT.rows, ids=lambda row: row.flag)
def test_every_row_names_settings_that_are_there_and_says_something(row: Row) -> None:
    assert row.about
    assert bool(row.to) == (row.outcome in ("mapped", "computed"))
    for path in row.to:
        assert owner(path) is not None, path


def test_the_barest_line_equals_the_documented_defaults() -> None:
    assert flat(translate().settings) == EXPECTED
    recipe = foreign.reading("open-sora-plan", BAREST, (), ALONE).recipe
    assert (recipe.objective.loss, recipe.objective.variance) == ("mse", None)
    assert (recipe.optim.schedule.decay_steps, recipe.data.cache.latents) == (None, False)


# --- what each flag does ----------------------------------------------------------------------------------------------

STILLS = ("--use_image_num=4", "--image_data=pictures.txt")
ACTS: dict[str, tuple[tuple[str, ...], list[str], dict[str, Any]]] = {
    # flag: what stands beside it, the flag, what it moves
    "video_data": ((), ["--video_data=b.txt"], {"data.path": ["b.txt"]}),
    "image_data": (STILLS, ["--image_data=b.txt"], {"data.clips.stills_path": ["b.txt"]}),
    "max_image_size": ((), ["--max_image_size=240"], {"data.resolution": 240, "data.buckets.step": 16}),
    "num_frames": ((), ["--num_frames=65"], {"data.clips.frames": 65, "model.latte.video_length": 17}),
    "use_img_from_vid": (STILLS, ["--use_img_from_vid=True"], {
        "data.clips.stills_from": "clips", "data.clips.stills_path": "gone", "data.clips.stills_order": "gone"}),
    "use_image_num": (STILLS, ["--use_image_num=8"], {"data.clips.stills": 8}),
    "text_embed_cache": ((), ["--text_embed_cache=False"], {
        "data.cache.text": False, "data.clips.texts": False, "model.text_encoder": "DeepFloyd/t5-v1_1-xxl"}),
    "enable_flip": ((), ["--enable_flip=True"], {"data.flip": 0.5}),
    "model_max_length": ((), ["--model_max_length=120"], {"model.max_tokens": 120}),
    "filter_nonexistent": ((), ["--filter_nonexistent=False"], {"data.clips.missing": "count"}),
    "pretrained": ((), ["--pretrained=a/65x512x512"], {"model.path": "a/65x512x512", "model.weights": "gone"}),
    "text_encoder_name": ((), ["--text_encoder_name=t5"], {"model.text_encoder": "t5"}),
    "ae_path": ((), ["--ae_path=vae"], {"model.vae": "vae"}),
    "use_rope": ((), ["--use_rope=True"], {"model.latte.rope": True}),
    "compress_kv": (("--compress_kv_factor=2",), ["--compress_kv=True"], {"model.latte.compress_kv": 2}),
    "compress_kv_factor": (("--compress_kv=True",), ["--compress_kv_factor=2"], {"model.latte.compress_kv": 2}),
    "enable_tiling": ((), ["--enable_tiling=True"], {"model.latte.tiling.enabled": True}),
    "tile_overlap_factor": ((), ["--tile_overlap_factor=0.5"], {"model.latte.tiling.overlap": 0.5}),
    "use_recompute": ((), ["--use_recompute=True"], {"run.recompute.enabled": True}),
    "num_no_recompute": (("--use_recompute=True",), ["--num_no_recompute=4"], {"run.recompute.exempt_last": 4}),
    "precision": ((), ["--precision=fp32"], {"run.precision": "fp32", "run.half": "autocast"}),
    "amp_level": ((), ["--amp_level=O2"], {"run.half": "most"}),
    "text_encoder_precision": ((), ["--text_encoder_precision=fp32"], {"run.frozen_dtype": "fp32"}),
    "vae_precision": ((), ["--vae_precision=bf16"], {"run.vae_dtype": "bf16"}),
    "vae_keep_gn_fp32": ((), ["--vae_keep_gn_fp32=True"], {"model.latte.vae_norms": "fp32"}),
    "loss_scaler_type": ((), ["--loss_scaler_type=static"], {"run.scaler.kind": "static"}),
    "loss_scale_factor": ((), ["--loss_scale_factor=4"], {"run.scaler.growth": 4.0}),
    "scale_window": ((), ["--scale_window=100"], {"run.scaler.growth_interval": 100}),
    "init_loss_scale": ((), ["--init_loss_scale=1024"], {"run.scaler.init": 1024}),
    "dataset_sink_mode": ((), ["--dataset_sink_mode=True"], {"run.device_prefetch": 2}),
    "sink_size": (("--dataset_sink_mode=True",), ["--sink_size=50"], {"run.log_every": 50}),
    "dataloader_num_workers": ((), ["--dataloader_num_workers=8"], {"data.workers": 8}),
    "batch_size": ((), ["--batch_size=2"], {"data.batch_size": 2}),
    "dataloader_prefetch_size": (("--dataset_sink_mode=True",), ["--dataloader_prefetch_size=3"], {
        "data.prefetch": 3, "run.device_prefetch": 3}),
    "optim": ((), ["--optim=AdamWeightDecay"], {"optim.optimizer.kind": "adam-weight-decay"}),
    "betas": ((), ["--betas", "0.8", "0.99"], {"optim.optimizer.betas": [0.8, 0.99]}),
    "optim_eps": ((), ["--optim_eps=1e-6"], {"optim.optimizer.eps": 1e-6}),
    "group_strategy": ((), ["--group_strategy=None"], {"optim.optimizer.no_decay": ["*bias", "~*layernorm*"]}),
    "clip_grad": ((), ["--clip_grad=True"], {"optim.clip.norm": 1.0}),
    "max_grad_norm": (("--clip_grad=True",), ["--max_grad_norm=0.5"], {"optim.clip.norm": 0.5}),
    "use_ema": ((), ["--use_ema=False"], {"optim.ema.rule": "none"}),
    "ema_decay": ((), ["--ema_decay=0.99"], {"optim.ema.decay": 0.99}),
    "gradient_accumulation_steps": ((), ["--gradient_accumulation_steps=4"], {"optim.accumulation": 4}),
    "weight_decay": ((), ["--weight_decay=0"], {"optim.optimizer.weight_decay": 0.0}),
    "lr_scheduler": ((), ["--lr_scheduler=polynomial_decay"], {
        "optim.schedule.kind": "polynomial", "optim.schedule.power": 0.9}),
    "start_learning_rate": ((), ["--start_learning_rate=2e-5"], {
        "optim.lr": 2e-5, "optim.schedule.floor": pytest.approx(0.05)}),
    "end_learning_rate": ((), ["--end_learning_rate=0"], {"optim.schedule.floor": 0.0}),
    "lr_warmup_steps": ((), ["--lr_warmup_steps=500"], {"optim.schedule.warmup_steps": 500}),
    "lr_decay_steps": (("--lr_warmup_steps=500",), ["--lr_decay_steps=1000"], {"optim.schedule.decay_steps": 1500}),
    "scale_lr": ((), ["--scale_lr=True"], {"optim.lr": pytest.approx(32e-5)}),
    "device": ((), ["--device=cpu"], {"run.device": "cpu", "run.compile": False}),
    "max_device_memory": ((), ["--max_device_memory=59GB"], {"run.device_memory": "59GB"}),
    "mode": ((), ["--mode=1"], {"run.compile": False}),
    "seed": ((), ["--seed=1"], {"run.seed": 1, "sample.seed": 1}),
    "max_train_steps": ((), ["--max_train_steps=1000"], {
        "run.steps": 1000, "run.whole_epochs": True, "run.epochs": "gone"}),
    "epochs": ((), ["--epochs=3"], {"run.epochs": 3}),
    "resume_from_checkpoint": ((), ["--resume_from_checkpoint=True"], {"run.resume": "auto"}),
    "ckpt_save_interval": ((), ["--ckpt_save_interval=2"], {"run.save.every": "2 epochs"}),
    "checkpointing_steps": ((), ["--checkpointing_steps=100"], {"run.save.every": "100 steps"}),
    "ckpt_max_keep": ((), ["--ckpt_max_keep=3"], {"run.save.keep": 3}),
    "log_interval": ((), ["--log_interval=10"], {"run.log_every": 10}),
    "profile": ((), ["--profile=True"], {"run.profile.steps": 3, "run.profile.folder": "profile_data"}),
    "output_dir": ((), ["--output_dir=a/b c"], {"run.folder": "a/b c", "run.name": "b-c"}),
    "output_path": ((), ["--output_path=there"], {"run.folder": "there", "run.name": "there"}),
    "global_bf16": ((), ["--global_bf16=True"], {"run.half": "all"}),
}  # fmt: skip
MANY: dict[str, tuple[tuple[str, ...], list[str], dict[str, Any]]] = {
    "use_parallel": ((), [], {}),
    "parallel_mode": (("--use_parallel=True",), ["--parallel_mode=optim"], {
        "run.runtime": "fsdp", "run.shard.parameters": False, "run.shard.group": 4}),
    "optimizer_weight_shard_size": (("--use_parallel=True", "--parallel_mode=optim"), [
        "--optimizer_weight_shard_size=2"], {"run.shard.group": 2}),
}  # fmt: skip


def test_every_flag_that_acts_is_shown_acting() -> None:
    assert {*ACTS, *MANY} == {flag for flag, row in ROWS.items() if row.outcome in ("mapped", "computed")}


@pytest.mark.parametrize("flag", ACTS)
def test_a_flag_moves_its_settings_and_no_others(flag: str) -> None:
    beside, words, expected = ACTS[flag]
    assert changed(*words, beside=beside) == expected
    origin = translate(*beside, *words).origin
    for path, value in expected.items():
        assert value == "gone" or origin[path].startswith("--"), path


@pytest.mark.parametrize("flag", MANY)
def test_a_flag_of_many_processes_moves_its_settings_and_no_others(flag: str) -> None:
    beside, words, expected = MANY[flag]
    if flag == "use_parallel":
        assert refusal(launched=FOUR) == [("--use_parallel", "E1018")]
        assert flat(translate("--use_parallel=True", launched=FOUR).settings)["run.runtime"] == "ddp"
    else:
        assert changed(*words, launched=FOUR, beside=beside) == expected


@pytest.mark.parametrize("flag", ACTS)
def test_what_a_flag_says_is_a_recipe_that_reads_back(flag: str) -> None:
    beside, words, _ = ACTS[flag]
    found = translate(*beside, *words)
    given = (*BAREST, *beside, *words)
    recipe = flat(foreign.reading("open-sora-plan", given, (), ALONE).recipe.model_dump(mode="json", by_alias=True))
    for path, value in flat(found.settings).items():
        assert recipe[path] in (value, [value]), path


@pytest.mark.parametrize("flag", sorted(flag for flag, row in ROWS.items() if row.outcome == "without effect"))
def test_a_flag_without_effect_says_why_and_changes_nothing(flag: str) -> None:
    row = ROWS[flag]
    if row.choices == (row.default,):
        assert refusal(f"--{flag}=other") == [(f"--{flag}", "E1017")]
        return
    other = not row.default if row.form == "switch" else row.choices[0] if row.choices else "7"
    assert changed(f"--{flag}={other}") == {}
    assert [n for n in notes(f"--{flag}={other}") if n.startswith(f"--{flag}: ")] == [f"--{flag}: {row.about}"]


@pytest.mark.parametrize(("flag", "value"), [("multi_scale", "True"), ("sp_size", "8"), ("vae_latent_folder", "x")])
def test_a_refused_flag_is_an_error_that_says_why(flag: str, value: str) -> None:
    assert refusal(f"--{flag}={value}") == [(f"--{flag}", "E1018")]


# --- what needs more than one flag ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "where"),
    [
        (["--num_frames=18"], "--num_frames"),
        (["--use_image_num=4"], "--use_image_num"),
        (["--use_image_num=20", "--use_img_from_vid=True"], "--use_image_num"),
        (["--max_image_size=250"], "--max_image_size"),
        (["--use_rope=True", "--compress_kv=True", "--compress_kv_factor=2"], "--use_rope"),
        (["--tile_overlap_factor=1"], "--tile_overlap_factor"),
        (["--num_no_recompute=29"], "--num_no_recompute"),
        (["--dataloader_prefetch_size=0"], "--dataloader_prefetch_size"),
        (["--end_learning_rate=1"], "--end_learning_rate"),
        (["--betas=0.9"], "--betas"),
        (["--mode=2"], "--mode"),
        (["--sink_size=0"], "--sink_size"),
        (["--precision=fp32", "--global_bf16=True"], "--global_bf16"),
        (["--video_data="], "--video_data"),
        (["--num_frames=1"], "--image_data"),
    ],
)
def test_values_that_cannot_be_are_named_by_their_flag(words: list[str], where: str) -> None:
    assert [place for place, _ in refusal(*words)] == [where]


def test_a_shard_size_has_to_divide_the_cards() -> None:
    words = ("--use_parallel=True", "--parallel_mode=optim", "--optimizer_weight_shard_size=3")
    assert refusal(*words, launched=FOUR) == [("--optimizer_weight_shard_size", "E1017")]
    semi = changed("--parallel_mode=semi", launched=FOUR, beside=("--use_parallel=True",))
    assert semi == MANY["parallel_mode"][2]
    assert any("semi is taken for optim" in n for n in notes("--use_parallel=1", "--parallel_mode=semi", launched=FOUR))


def test_counts_of_micro_batches_are_divided_by_the_accumulation_and_rounded_up() -> None:
    beside = ("--gradient_accumulation_steps=4",)
    words = [f"--{flag}=10" for flag in ("max_train_steps", "checkpointing_steps", "log_interval", "lr_warmup_steps")]
    moved = changed(*words, "--lr_decay_steps=9", beside=beside)
    assert moved == {
        "run.steps": 3, "run.whole_epochs": True, "run.epochs": "gone", "run.save.every": "3 steps",
        "run.log_every": 3, "optim.schedule.warmup_steps": 3, "optim.schedule.decay_steps": 6,
    }  # fmt: skip
    assert any("moves once a step" in note for note in notes(*beside))


def test_pictures_alone_are_trained_with_one_frame() -> None:
    moved = changed("--num_frames=1", "--image_data=pictures.txt")
    assert moved == {
        "data.path": ["pictures.txt"], "data.clips.frames": 1, "data.clips.stills": "gone",
        "model.latte.video_length": 1,
    }  # fmt: skip
    assert any("the list of pictures alone" in n for n in notes("--num_frames=1", "--image_data=pictures.txt"))


def test_an_odd_number_that_is_not_4k_plus_1_trains_with_a_note() -> None:
    assert any("17 frames come back" in note for note in notes("--num_frames=19"))


def test_a_file_of_weights_takes_the_configuration_that_ships() -> None:
    moved = changed("--pretrained=LatteT2V-XL-122-e1.ckpt")
    assert moved == {
        "model.path": "LatteT2V-XL-122-e1.ckpt", "model.config": "latte-17f", "model.weights": "gone",
    }  # fmt: skip
    resumed = changed("--resume_from_checkpoint=output/ckpt/train_resume.ckpt")
    assert (resumed["model.path"], resumed["run.resume"]) == ("output/ckpt/train_resume.ckpt", "auto")
    assert changed("--resume_from_checkpoint=output/checkpoints/step-00000005")["run.resume"].endswith("step-00000005")


def test_notes_tell_what_acts_with_another_flag_alone() -> None:
    for words, said in (
        (["--max_grad_norm=2"], "without --clip_grad"), (["--num_no_recompute=2"], "acts with --use_recompute"),
        (["--sink_size=5"], "acts with --dataset_sink_mode"), (["--scale_window=5"], "acts in fp16 alone"),
        (["--compress_kv_factor=2"], "nothing is compressed"), (["--lr_scheduler=multi_step_decay"], "no milestones"),
        (["--use_parallel=True"], "one process is running"), (["--step_mode=True"], "checkpoints go by steps when"),
        (["--image_data=p.txt"], "no pictures are trained beside clips"),
    ):  # fmt: skip
        assert any(said in note for note in notes(*words)), words
