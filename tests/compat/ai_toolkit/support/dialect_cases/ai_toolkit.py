"""Expectations of the command of `ai-toolkit`; those of the keys of its files are in test_tables.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from foreign_lines import Lines

FIRST = Path(__file__).parents[1] / "first.yaml"
BAREST = (f"--config_file={FIRST}",)

EXPECTED: dict[str, Any] = {
    "schema": 1,
    "model.path": "sd15", "model.family": "sd", "model.prediction": "epsilon", "model.train": ["denoiser"],
    "model.adapter.kind": "lora",
    "model.adapter.rank": 16, "model.adapter.alpha": 8.0,
    "model.adapter.targets": [
        "denoiser/all-linear", "denoiser/*.proj_in", "denoiser/*.proj_out", "denoiser/*.conv_shortcut",
        "denoiser/time_embedding.*"],
    "data.path": "images", "data.batch_size": 1, "data.captions.missing": "empty", "data.captions.dropout": 0.0,
    "data.resize": "bicubic", "data.captions.extension": ".txt",
    "data.buckets.shape": "own", "data.buckets.step": 64, "data.resolution": 512,
    "objective.noise_offset": 0.0, "objective.loss": "mse", "objective.timesteps": [2, 999],
    "optim.lr": 1e-6, "optim.optimizer.kind": "adamw", "optim.optimizer.weight_decay": 0.01,
    "optim.optimizer.eps": 1e-6, "optim.schedule.kind": "constant", "optim.accumulation": 1, "optim.clip.norm": 1.0,
    "run.name": "fox", "run.folder": "output/fox",
    "run.export.folder": "output/fox", "run.resume": "auto", "run.steps": 1000, "run.device": "auto",
    "run.seed": 0, "run.precision": "fp32", "run.weight_dtype": "fp32", "run.frozen_dtype": "same",
    "run.gradient_checkpointing.enabled": True, "run.log_every": 100, "run.save.every": "1000 steps",
    "run.save.keep": 5, "run.export.every": "1000 steps", "run.export.name": "{name}_{step:09}",
    "run.export.dtype": "fp16", "run.preview.every": "100 steps",
    "sample.prompts": ["a fox"], "sample.negative_prompt": "", "sample.seed": 0, "sample.steps": 20,
    "sample.guidance": 7.0, "sample.guidance_rescale": 0.0, "sample.size": [512, 512], "sample.solver": "ddpm",
}  # fmt: skip

_NAMED = FIRST.parent / "named.yaml"

LINES = Lines(
    "ai-toolkit",
    barest=BAREST,
    defaults={"config_file": None, "name": None, "recover": False, "log": None},
    settings=EXPECTED,
    acts={
        "config_file": ([f"--config_file={_NAMED}", "--name=owl"],
                        {"run.name": "owl", "run.folder": "output/owl", "run.export.folder": "output/owl",
                         "sample.prompts": ["a owl"]}),
        "name": (["--name=owl"], {}),
    },
    impossible=(
        (["--config_file=none.yaml"], "--config_file", "E1017"), (["--naem=a"], "--naem", "E1016"),
        (["--steps=3"], "--steps", "E1016"),
    ),
)  # fmt: skip
