"""The dialect `diffusers-sd`: what it leaves out, what it does not copy, the command of the benchmark."""

from __future__ import annotations

import shlex

import pytest
from dialect_cases.diffusers_sd import BAREST, LINES
from foreign_lines import ALONE, flat

from mezzotint.errors import RecipeError
from mezzotint.settings.reading.translation import Launched
from mezzotint.tasks.reading import foreign

EIGHT = Launched(8, "fp16", "accelerate")

translate, changed, notes, refusal = LINES.translate, LINES.changed, LINES.notes, LINES.refusal


def test_defaults_leave_out_what_the_script_leaves_out() -> None:
    recipe = foreign.read_command_line("diffusers-sd", BAREST, (), ALONE).recipe
    assert recipe.data.captions.dropout == 0.0
    assert recipe.data.captions.missing == "error"
    assert recipe.data.holdout.fraction == 0.0
    assert recipe.data.repeats == 1.0
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


def test_quirks_not_copied_are_noted_where_they_matter() -> None:
    output = " ".join(notes("--gradient_accumulation_steps=4", "--seed=1", "--prediction_type=epsilon", launched=EIGHT))
    for words in ("logged loss is that of the whole step", "has full weight", "its own noise", "added in float32",
                  "is written to the exported scheduler"):  # fmt: skip
        assert words in output
    assert notes() == ["--seed: not given; 0 is used, so that the run can be repeated. Other seeds give other results"]


BENCHMARK = shlex.split(
    "accelerate launch --multi_gpu --num_processes=8 --mixed_precision=fp16 train_text_to_image.py "
    "--pretrained_model_name_or_path=CompVis/stable-diffusion-v1-4 --dataset_name=lambdalabs/pokemon-blip-captions "
    "--use_ema --resolution=512 --center_crop --random_flip --train_batch_size=8 --gradient_accumulation_steps=4 "
    "--max_train_steps=101 --learning_rate=1e-05 --max_grad_norm=1 --lr_scheduler=constant --lr_warmup_steps=0 "
    "--output_dir=sd-pokemon-model"
)


def test_benchmark_command_is_translated_to_its_protocol() -> None:
    with pytest.raises(RecipeError, match="torchrun --nproc-per-node 8 -m mezzotint train --as diffusers-sd") as caught:
        LINES.dialect.translate(BENCHMARK, ALONE)
    typed = str(caught.value).partition(" -- ")[2].split()
    settings = flat(LINES.dialect.translate(typed, Launched(8)).settings)
    assert settings == flat(LINES.dialect.translate(BENCHMARK, EIGHT).settings)
    protocol = {
        "data.batch_size": 64, "optim.accumulation": 4, "run.steps": 101, "optim.lr": 1e-5, "optim.clip.norm": 1.0,
        "optim.schedule.kind": "constant", "optim.schedule.warmup_steps": 0, "optim.ema.rule": "ramp",
        "data.resolution": 512, "data.crop": "center", "data.flip": 0.5, "data.remainder": "fill",
        "run.precision": "fp16", "run.folder": "sd-pokemon-model", "run.gradient_checkpointing.enabled": False,
        "model.path": "CompVis/stable-diffusion-v1-4", "data.path": "lambdalabs/pokemon-blip-captions",
    }  # fmt: skip
    assert {path: settings[path] for path in protocol} == protocol
    assert "run.compile" not in settings, "a protocol is kept: nothing faster is switched on"
