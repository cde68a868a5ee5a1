"""Precision, memory and files of a run."""

from __future__ import annotations

from typing import Any

import pytest
from musubi_commands import changed, notes, problems, translate

from mezzotint.settings.reading.translation import Launched

WAN, FULL = "wan_train_network", "qwen_image_train"
BF16 = {"run.precision": "bf16"}


@pytest.mark.parametrize(
    ("script", "words", "expected"),
    [
        (WAN, "--mixed_precision=bf16 --fp8_base --fp8_scaled", BF16 | {"run.frozen_dtype": "int8"}),
        (FULL, "--mixed_precision=bf16", BF16),
        (FULL, "--mixed_precision=bf16 --full_bf16",
         BF16 | {"run.weight_dtype": "pure", "run.export.dtype": "bf16"}),
        (FULL, "--mixed_precision=bf16 --fp8_base", BF16),
        (FULL, "--save_precision=fp16", {}),
        (FULL, "--log_with=wandb", {"run.wandb.mode": "online", "run.wandb.project": "fine-tuning"}),
        (WAN, "--max_train_epochs=2 --max_train_steps=9", {"run.epochs": 2, "run.steps": None}),
        (WAN, "--compile --compile_mode=max-autotune", {"run.compile": True}),
    ],
)  # fmt: skip
def test_settings_of_a_run(script: str, words: str, expected: dict[str, Any]) -> None:
    assert changed(script, *words.split()) == expected


def test_launcher_sets_the_precision() -> None:
    translated = translate(WAN, launched=Launched(mixed_precision="bf16", launcher="accelerate"))
    assert translated.settings["run"]["precision"] == "bf16"
    assert translated.origin["run.precision"] == "the launcher (accelerate)"
    other = translate(WAN, "--mixed_precision=fp16", launched=Launched(mixed_precision="bf16", launcher="accelerate"))
    assert other.settings["run"]["precision"] == "fp16"


def test_models_are_single_files() -> None:
    export = translate(FULL).settings["run"]["export"]
    assert export["single_file"] is True
    assert export["single_file_folder"] == "out"


def test_full_bf16_needs_its_precision() -> None:
    [problem] = problems(FULL, "--full_bf16")
    assert (problem.where, problem.code) == ("--full_bf16", "E1017")
    assert "trains all weights" in notes(FULL, "--fp8_base")
