"""The dialect `mindone-sdxl`: every flag of `train.py` has its row, its default is the documented one, and where it
acts it moves the settings that it should, and no others. Its YAML files have a test file of their own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mezzotint.dialects.base import Launched, Translation
from mezzotint.dialects.mindone_sdxl._dialect import DIALECT, SHIPPED
from mezzotint.errors import RecipeError
from mezzotint.recipe.reading.paths import owner
from mezzotint.tasks.reading import arguments, foreign

BAREST = ("--config=configs/training/sd_xl_base_finetune_910b.yaml", "--data_path=pictures")
ALONE, EIGHT = Launched(), Launched(8, None, "torchrun")
ROWS = {row.flag: row for row in DIALECT.rows}

DOCUMENTED: dict[str, Any] = {
    "version": "SDXL-base-1.0", "config": "configs/training/sd_xl_base_finetune_lora.yaml", "task": "txt2img",
    "cache_latent": False, "cache_text_embedding": False, "cache_path": "./cache_data",
    "gradient_accumulation_steps": 1, "clip_grad": False, "max_grad_norm": 1.0, "use_ema": False,
    "weight": "checkpoints/sd_xl_base_1.0_ms.ckpt", "per_batch_size": None, "scale_lr": False,
    "timestep_bias_strategy": None, "timestep_bias_multiplier": 1.0, "timestep_bias_begin": 0,
    "timestep_bias_end": 1000, "timestep_bias_portion": 0.25, "snr_gamma": None, "seed": 42,
    "sd_xl_base_ratios": "1.0", "data_path": "", "save_path": "./runs", "save_path_with_time": True,
    "log_interval": 1, "save_ckpt_only_rank_zero": False, "save_ckpt_interval": 1000, "max_num_ckpt": None,
    "resume_step": 0, "optimizer_weight": None, "save_optimizer": False, "data_sink": False, "sink_size": 1000,
    "sink_queue_size": -1, "dataset_load_tokenizer": True, "lpw": False, "max_embeddings_multiples": 3,
    "infer_during_train": False, "infer_interval": 1, "device_target": "Ascend", "ms_mode": 0, "ms_amp_level": "O2",
    "ms_enable_graph_kernel": False, "ms_enable_allreduce_fusion": True, "param_fp16": False,
    "overflow_still_update": True, "max_device_memory": None, "is_parallel": False, "enable_modelarts": False,
    "ckpt_url": "", "train_url": "", "multi_data_url": "", "pretrain_url": "", "ckpt_dir": "/cache/pretrain_ckpt/",
}  # fmt: skip
LATER: dict[str, Any] = {"jit_level": "O2", "dynamic_shape": False}


def translate(*words: str, launched: Launched = ALONE) -> Translation:
    return DIALECT.translate([*BAREST, *words], launched)


def flat(tree: Any, prefix: str = "") -> dict[str, Any]:
    """Settings by dotted path."""
    if not isinstance(tree, dict):
        return {prefix[:-1]: tree}
    return {path: value for key, inner in tree.items() for path, value in flat(inner, f"{prefix}{key}.").items()}


def changed(*words: str, launched: Launched = ALONE) -> dict[str, Any]:
    """What a line sets otherwise than the barest one does, and what it leaves out as None."""
    before, after = flat(translate(launched=launched).settings), flat(translate(*words, launched=launched).settings)
    return {path: after.get(path) for path in before | after if before.get(path, "absent") != after.get(path, "absent")}


def notes(*words: str, launched: Launched = ALONE) -> str:
    return "\n".join(str(note) for note in translate(*words, launched=launched).notes)


def refusal(*words: str, launched: Launched = ALONE) -> list[tuple[str, str]]:
    with pytest.raises(RecipeError) as caught:
        foreign.reading("mindone-sdxl", [*BAREST, *words], (), launched)
    assert caught.value.exit_status == 2
    return [(problem.where, problem.code) for problem in caught.value.problems]


# --- the table --------------------------------------------------------------------------------------------------------


def test_every_flag_has_one_row_with_its_documented_default() -> None:
    assert len(ROWS) == len(DIALECT.rows)
    assert {flag: row.default for flag, row in ROWS.items() if not row.since} == DOCUMENTED
    assert {flag: row.default for flag, row in ROWS.items() if row.since} == LATER


def test_every_row_names_settings_that_are_there_and_says_something() -> None:
    for row in DIALECT.rows:
        assert row.about, row.flag
        assert bool(row.to) == (row.outcome in ("mapped", "computed")), row.flag
        for path in row.to:
            assert owner(path) is not None, f"{row.flag} names {path}"


def test_the_barest_line_equals_the_documented_defaults() -> None:
    """The document's YAML gives what flags do not."""
    assert flat(translate().settings) == {
        "schema": 1,
        "model.family": "sdxl", "model.path": "checkpoints/sd_xl_base_1.0_ms.ckpt", "model.train": ["denoiser"],
        "model.prediction": "epsilon", "model.attention": "auto",
        "data.path": ["pictures"], "data.format": "mindone", "data.resolution": 1024, "data.buckets.shape": "square",
        "data.buckets.step": 64, "data.crop": "random", "data.flip": 0.0, "data.resize": "bicubic",
        "data.antialias": False, "data.original_size": "stored", "data.small": "upscale", "data.workers": 2,
        "data.shuffle": True, "data.remainder": "drop", "data.batch_size": 1, "data.captions.dropout": 0.0,
        "data.captions.dropped": "empty", "data.captions.missing": "empty", "data.cache.latents": False,
        "data.cache.text": False,
        "objective.levels": "timesteps", "objective.weighting": "prediction", "objective.loss": "mse",
        "objective.noise_offset": 0.05, "objective.noise_offset_per": "sample", "objective.min_snr_gamma": None,
        "objective.min_snr_form": "x0", "objective.timestep_bias.strategy": "none",
        "objective.timestep_bias.multiplier": 1.0, "objective.timestep_bias.begin": 0,
        "objective.timestep_bias.end": 1000, "objective.timestep_bias.portion": 0.25,
        "optim.optimizer.kind": "adam-weight-decay", "optim.optimizer.betas": [0.9, 0.999],
        "optim.optimizer.eps": 1e-6, "optim.optimizer.weight_decay": 0.01, "optim.optimizer.no_decay": ["@mindone"],
        "optim.lr": 1e-6, "optim.schedule.kind": "constant", "optim.schedule.warmup_steps": 500,
        "optim.accumulation": 1, "optim.clip.norm": None, "optim.ema.rule": "none", "optim.ema.decay": 0.9999,
        "run.steps": 100000, "run.folder": "./runs/{stamp}", "run.name": "SDXL-base-1.0", "run.resume": "never",
        "run.export.link": "weights", "run.export.single_file": True,
        "run.export.name": "{what}_{micro_step}{ema}", "run.export.every": "1000 steps",
        "run.save.every": "1000 steps", "run.save.keep": None, "run.export.mindspore_optimizer": False,
        "run.log_every": 1, "run.preview.every": None, "run.seed": 42,
        "run.precision": "fp16", "run.half": "most", "run.frozen_dtype": "same", "run.weight_dtype": "fp32",
        "run.vae_dtype": "fp32", "run.scaler.kind": "static", "run.scaler.init": 1024.0, "run.recompute.enabled": True,
        "run.device": "auto", "run.runtime": "auto",
        "sample.seed": 42, "sample.steps": 40, "sample.guidance": 5.0, "sample.solver": "euler",
    }  # fmt: skip


def test_the_barest_line_is_a_recipe() -> None:
    recipe = foreign.reading("mindone-sdxl", BAREST, (), ALONE).recipe
    assert (recipe.model.weights, recipe.model.depth, recipe.run.device_prefetch) == ("files", None, 0)
    assert recipe.run.start.step == 0
    assert recipe.objective.timesteps == (0, 1000)


# --- what each flag does ----------------------------------------------------------------------------------------------

ACTS: dict[str, tuple[list[str], dict[str, Any]]] = {
    "version": (
        ["--version=SDXL-refiner-1.0"],
        {"run.name": "SDXL-refiner-1.0"},
    ),
    "weight": (["--weight=mine.safetensors"], {"model.path": "mine.safetensors"}),
    "task": (
        ["--task=cache", "--cache_latent=True"], {"data.cache.latents": True, "data.cache.path": "./cache_data"},
    ),
    "cache_latent": (
        ["--cache_latent", "True"], {"data.cache.latents": True, "data.cache.path": "./cache_data"},
    ),
    "cache_text_embedding": (
        ["--cache_text_embedding", "True"], {"data.cache.text": True, "data.cache.path": "./cache_data"},
    ),
    "cache_path": (
        ["--cache_text_embedding=True", "--cache_path=there"], {"data.cache.text": True, "data.cache.path": "there"},
    ),
    "gradient_accumulation_steps": (
        ["--gradient_accumulation_steps=4"],
        {
            "optim.accumulation": 4, "optim.schedule.warmup_steps": 125, "run.steps": 25000,
            "run.save.every": "250 steps", "run.export.every": "250 steps",
        },
    ),
    "clip_grad": (["--clip_grad", "True"], {"optim.clip.norm": 1.0, "optim.clip.scope": "tensor"}),
    "max_grad_norm": (
        ["--clip_grad=True", "--max_grad_norm=0.5"], {"optim.clip.norm": 0.5, "optim.clip.scope": "tensor"},
    ),
    "use_ema": (["--use_ema"], {"optim.ema.rule": "saturating"}),
    "per_batch_size": (["--per_batch_size=6"], {"data.batch_size": 6}),
    "scale_lr": (["--scale_lr=True", "--per_batch_size=3"], {"data.batch_size": 3, "optim.lr": pytest.approx(3e-6)}),
    "timestep_bias_strategy": (
        ["--timestep_bias_strategy=earlier"], {"objective.timestep_bias.strategy": "earlier"},
    ),
    "timestep_bias_multiplier": (["--timestep_bias_multiplier=2"], {"objective.timestep_bias.multiplier": 2.0}),
    "timestep_bias_begin": (["--timestep_bias_begin=200"], {"objective.timestep_bias.begin": 200}),
    "timestep_bias_end": (["--timestep_bias_end=500"], {"objective.timestep_bias.end": 500}),
    "timestep_bias_portion": (["--timestep_bias_portion=0.5"], {"objective.timestep_bias.portion": 0.5}),
    "snr_gamma": (["--snr_gamma", "5.0"], {"objective.min_snr_gamma": 5.0}),
    "seed": (["--seed=7"], {"run.seed": 7, "sample.seed": 7}),
    "sd_xl_base_ratios": (
        ["--infer_during_train=True", "--sd_xl_base_ratios=1.46", "--infer_interval=100"],
        {
            "sample.size": [1216, 832], "run.preview.every": "100 steps",
            "sample.prompts": ["Astronaut in a jungle, cold color palette, muted colors, detailed, 8k"],
        },
    ),
    "data_path": (["--data_path=elsewhere"], {"data.path": ["elsewhere"]}),
    "save_path": (["--save_path=out/"], {"run.folder": "out/{stamp}"}),
    "save_path_with_time": (["--save_path_with_time", "False"], {"run.folder": "./runs"}),
    "log_interval": (["--log_interval=10"], {"run.log_every": 10}),
    "save_ckpt_interval": (
        ["--save_ckpt_interval=50"], {"run.save.every": "50 steps", "run.export.every": "50 steps"},
    ),
    "max_num_ckpt": (["--max_num_ckpt=3"], {"run.save.keep": 3}),
    "resume_step": (["--resume_step=1000"], {"run.start.step": 1000}),
    "optimizer_weight": (
        ["--resume_step=1000", "--optimizer_weight=optimizer.ckpt"],
        {"run.start.step": 1000, "run.start.optimizer": "optimizer.ckpt"},
    ),
    "save_optimizer": (["--save_optimizer=True"], {"run.export.mindspore_optimizer": True}),
    "data_sink": (["--data_sink", "True"], {"run.device_prefetch": 10}),
    "sink_queue_size": (["--data_sink=True", "--sink_queue_size=2"], {"run.device_prefetch": 2}),
    "infer_during_train": (
        ["--infer_during_train=True"],
        {
            "sample.size": [1024, 1024], "run.preview.every": "1 steps",
            "sample.prompts": ["Astronaut in a jungle, cold color palette, muted colors, detailed, 8k"],
        },
    ),
    "infer_interval": (
        ["--infer_during_train=True", "--infer_interval=9"],
        {
            "sample.size": [1024, 1024], "run.preview.every": "9 steps",
            "sample.prompts": ["Astronaut in a jungle, cold color palette, muted colors, detailed, 8k"],
        },
    ),
    "device_target": (["--device_target=CPU"], {"run.device": "cpu"}),
    "ms_amp_level": (
        ["--ms_amp_level=O0"],
        {"run.precision": "fp32", "run.frozen_dtype": "fp32", "run.vae_dtype": None},
    ),
    "param_fp16": (["--param_fp16", "True"], {"run.weight_dtype": "same"}),
    "max_device_memory": (["--max_device_memory", "59GB"], {"run.device_memory": "59GB"}),
}  # fmt: skip


def test_every_flag_that_acts_is_shown_acting() -> None:
    acting = {flag for flag, row in ROWS.items() if row.outcome in ("mapped", "computed")}
    assert set(ACTS) == acting - {"is_parallel", "config"}, "which have tests of their own"


@pytest.mark.parametrize("flag", ACTS)
def test_a_flag_moves_its_settings_and_no_others(flag: str) -> None:
    words, expected = ACTS[flag]
    assert changed(*words) == expected
    made = foreign.reading("mindone-sdxl", [*BAREST, *words], (), ALONE)
    assert made.recipe.model.family == "sdxl"


@pytest.mark.parametrize("flag", sorted(flag for flag, row in ROWS.items() if row.outcome == "without effect"))
def test_a_flag_without_effect_says_why_and_changes_nothing(flag: str) -> None:
    row = ROWS[flag]
    other = str(not row.default) if row.form == "switch" else "O1" if row.choices else "3" if row.default != 3 else "4"
    assert changed(f"--{flag}={other}") == {}
    assert f"--{flag}: " in notes(f"--{flag}={other}")


def test_levels_of_precision_are_those_of_the_framework() -> None:
    found = {level: translate(f"--ms_amp_level={level}").settings["run"] for level in ("O0", "O1", "O2", "O3")}
    assert {level: run["precision"] for level, run in found.items()} == {
        "O0": "fp32", "O1": "fp16", "O2": "fp16", "O3": "fp16"
    }  # fmt: skip
    assert {level: run["half"] for level, run in found.items() if level != "O0"} == {
        "O1": "products", "O2": "most", "O3": "all"
    }  # fmt: skip
    assert refusal("--ms_amp_level=O4") == [("--ms_amp_level", "E1017")]


# --- what needs more than one flag ------------------------------------------------------------------------------------


def test_the_documents_timestep_bias_is_a_range_without_its_end() -> None:
    words = ["--timestep_bias_multiplier", "2", "--timestep_bias_strategy", "range", "--timestep_bias_begin", "200",
             "--timestep_bias_end", "500", "--timestep_bias_portion", "0.25"]  # fmt: skip
    bias = foreign.reading("mindone-sdxl", [*BAREST, *words], (), ALONE).recipe.objective.timestep_bias
    assert bias.model_dump() == {
        "strategy": "range", "multiplier": 2.0, "begin": 200, "end": 500, "portion": 0.25
    }  # fmt: skip
    assert "--timestep_bias_portion: not looked at with range" in notes(*words)
    assert "all timesteps are drawn alike" in notes("--timestep_bias_multiplier=2")
    assert changed("--timestep_bias_strategy=none") == {}, "the word that its own parser does not take"


def test_counts_of_batches_become_steps_rounded_up() -> None:
    words = ["--gradient_accumulation_steps=3", "--save_ckpt_interval=10", "--log_interval=4", "--resume_step=7",
             "--infer_during_train=True", "--infer_interval=5"]  # fmt: skip
    recipe = foreign.reading("mindone-sdxl", [*BAREST, *words], (), ALONE).recipe
    run = recipe.run
    assert (run.steps, str(run.save.every[0]), run.log_every, run.start.step) == (33334, "4 steps", 2, 3)
    assert str(run.preview.every) == "2 steps"
    assert "100000 batches are 33334 steps" in notes(*words)


def test_a_batch_is_that_of_all_cards_and_scales_the_rate() -> None:
    words = ["--is_parallel=True", "--per_batch_size=2", "--gradient_accumulation_steps=4", "--scale_lr=True"]
    settings = flat(translate(*words, launched=EIGHT).settings)
    assert (settings["data.batch_size"], settings["optim.lr"]) == (16, pytest.approx(1e-6 * 64))
    assert "2 on each of 8 cards: a batch of 16" in notes(*words, launched=EIGHT)


def test_several_processes_need_is_parallel() -> None:
    assert refusal(launched=EIGHT) == [("--is_parallel", "E1083")]
    assert changed("--is_parallel=True") == {}


def test_clipping_is_of_tensors_alone_and_of_all_with_accumulation() -> None:
    both = translate("--clip_grad=True", "--gradient_accumulation_steps=2").settings["optim"]["clip"]
    assert both == {"norm": 1.0, "scope": "all"}
    assert "without --clip_grad True nothing is clipped" in notes("--max_grad_norm=2")


def test_empty_weights_are_random_ones_and_of_several_files_later_ones_are_laid_over_the_first() -> None:
    assert changed("--weight", "") == {"model.path": "sdxl", "model.weights": "random"}
    assert "random weights" in notes("--weight", "")
    words = "--weight=a.ckpt,b.ckpt, c.ckpt"
    assert changed(words) == {"model.path": "a.ckpt", "model.over": ["b.ckpt", "c.ckpt"]}
    assert "b.ckpt, c.ckpt: laid over a.ckpt in this order" in notes(words)


def test_documented_advice_travels_as_notes() -> None:
    assert "sdxl-vae-fp16-fix" in notes("--param_fp16=True")
    assert "a step that is not finite never moves weights" in notes()
    assert "never moves weights" not in notes("--ms_amp_level=O0")
    assert "each tensor is clipped on its own" in notes("--clip_grad=True")
    assert "exported models in weights/ all stay" in notes("--max_num_ckpt=2")
    assert "without --data_sink True it has no effect" in notes("--sink_size=100")
    assert "the run ends there, and there at the end of an epoch" in notes()


def test_what_is_cached_may_be_cached_alone_and_a_cache_asks_for_something() -> None:
    assert "is cached alone" in notes("--cache_latent=True")
    both = ["--cache_latent=True", "--cache_text_embedding=True"]
    assert "is cached alone" not in notes(*both)
    assert "nothing is cached" in notes("--cache_path=x")
    assert translate("--task=cache", *both).verb == "cache"
    assert translate(*both).verb == "train"
    assert refusal("--task=cache") == [("--task", "E1017")]


def test_a_folder_that_the_other_trainer_has_cached_into_is_trained_as_it_is(tmp_path: Any) -> None:
    (tmp_path / "latent_cache").mkdir()
    words = ["--cache_latent=True", "--cache_text_embedding=True", f"--cache_path={tmp_path}"]
    data = translate(*words).settings["data"]
    assert (data["format"], data["path"]) == ("mindone-cache", [str(tmp_path)])
    assert "its age is not known" in notes(*words)
    read = foreign.reading("mindone-sdxl", [*BAREST, *words], (), ALONE).recipe.data
    assert (read.cache.latents, read.cache.text, read.cache.content, read.crop) == (True, True, "sample", "center")
    data = translate(f"--data_path={tmp_path}").settings["data"]
    assert (data["format"], data["path"]) == ("mindone-cache", [str(tmp_path)]), "the plain script on a cache folder"


@pytest.mark.parametrize(
    ("words", "where"),
    [
        (["--gradient_accumulation_steps=0"], "--gradient_accumulation_steps"),
        (["--per_batch_size=0"], "--per_batch_size"),
        (["--clip_grad=True", "--max_grad_norm=0"], "--max_grad_norm"),
        (["--seed=-1"], "--seed"),
        (["--save_ckpt_interval=0"], "--save_ckpt_interval"),
        (["--log_interval=0"], "--log_interval"),
        (["--max_num_ckpt=0"], "--max_num_ckpt"),
        (["--resume_step=-1"], "--resume_step"),
        (["--infer_during_train=True", "--infer_interval=0"], "--infer_interval"),
        (["--sink_queue_size=0"], "--sink_queue_size"),
        (["--sd_xl_base_ratios=1.5"], "--sd_xl_base_ratios"),
        (["--lpw=True"], "--lpw"),
        (["--data_path="], "--data_path"),
        (["--timestep_bias_strategy=latter"], "--timestep_bias_strategy"),
        (["--timestep_bias_multiplier=0"], "--timestep_bias_multiplier"),
        (["--timestep_bias_end=1001"], "--timestep_bias_end"),
        (["--snr_gamma=0"], "--snr_gamma"),
        (["--max_device_memory=plenty"], "--max_device_memory"),
        (["--optimizer_weight=optimizer.ckpt"], "--optimizer_weight"),
        (["--weigth=x"], "--weigth"),
        (["--config=configs/training/sd_xl_base_finetune_lora.yaml"], "--config"),
        (["--config=configs/training/mine.yaml"], "--config"),
    ],
)
def test_values_that_cannot_be_are_named_by_their_flag(words: list[str], where: str) -> None:
    assert [found for found, _ in refusal(*words)] == [where]


def test_a_line_without_a_yaml_names_those_that_ship() -> None:
    with pytest.raises(RecipeError, match=r"is for LoRA; these ship: sd_xl_base_finetune_910b, "):
        DIALECT.translate(["--data_path=x"], ALONE)
    for path in SHIPPED.glob("sd_xl_base_finetune*.yaml"):
        made = foreign.reading("mindone-sdxl", [f"--config=elsewhere/{path.name}", "--data_path=x"], (), ALONE)
        assert any(f"there is no elsewhere/{path.name} here" in note for note in made.notes)


@pytest.mark.parametrize(
    ("script", "word"),
    [
        ("train_dreambooth.py", "DreamBooth"),
        ("train_textual_inversion.py", "textual inversion"),
        ("train_controlnet.py", "ControlNet"),
    ],
)
def test_other_scripts_are_refused_by_name(script: str, word: str) -> None:
    with pytest.raises(RecipeError, match=f"{script} trains {word}, which is not supported yet"):
        DIALECT.translate(["python", script, *BAREST], ALONE)


def test_a_run_begun_with_what_shipped_before_keeps_it(tmp_path: Path) -> None:
    """Rate, warm-up, offset noise and attention of the files that ship have changed: for new runs."""
    run = tmp_path / "run"
    (run / "checkpoints").mkdir(parents=True)
    (run / "recipe.yaml").write_text(
        "schema: 1\nmodel: {family: sdxl, path: sdxl, attention: math}\nobjective: {noise_offset: 0.0}\n"
        "optim: {lr: 4.0e-5, optimizer: {kind: adam-weight-decay, betas: [0.9, 0.98]}, schedule: {warmup_steps: 0}}\n"
    )
    line = [*BAREST, "--scale_lr=True", "--per_batch_size=4", f"--weight={run}"]
    new = arguments.parse(["--as", "mindone-sdxl", "--", *line[:-1]], "train").recipe
    old = arguments.parse(["--as", "mindone-sdxl", "--", *line], "train")
    told = [
        (one.model.attention, one.objective.noise_offset, one.optim.lr, one.optim.optimizer.betas,
         one.optim.schedule.warmup_steps) for one in (new, old.recipe)
    ]  # fmt: skip
    assert told == [("auto", 0.05, pytest.approx(4e-6), (0.9, 0.999), 500), ("math", 0.0, 4e-5, (0.9, 0.98), 0)]
    assert sum("which the run began with; a new run takes" in note for note in old.notes) == 5
    laid = ["--as", "mindone-sdxl", "optim.lr=1e-4", "--", *line]
    assert arguments.parse(laid, "train").recipe.optim.lr == 1e-4, "what is laid over the line counts"
