"""Length, precision, memory, files and logs of a run."""

from __future__ import annotations

from typing import Any

import pytest
from kohya_commands import changed, notes, refusal, settings, translate

from mezzotint.settings.reading.translation import Launched


@pytest.mark.parametrize(
    ("script", "words", "expected"),
    [
        ("train_db", "--max_train_epochs=4 --max_train_steps=9", {"run.epochs": 4, "run.steps": None}),
        ("sdxl_train_network", "--cache_text_encoder_outputs --network_train_unet_only",
         {"data.cache.text": True, "model.train": ["denoiser"], "model.adapter.targets": ["denoiser/attention+mlp"]}),
        ("sdxl_train", "--cache_text_encoder_outputs_to_disk", {"data.cache.text": True}),
        ("flux_train_network", "--cache_text_encoder_outputs", {}),
        ("flux_train", "--blocks_to_swap=18", {"run.offload.blocks": "auto"}),
        ("flux_train", "--blocks_to_swap=0", {}),
        ("train_db", "--save_model_as=safetensors", {}),
        ("train_db", "--save_model_as=diffusers",
         {"run.export.single_file": False, "run.export.single_file_folder": None, "run.export.folder": "out/last"}),
        ("train_db", "--save_every_n_epochs=2 --save_every_n_steps=100",
         {"run.export.every": ["2 epochs", "100 steps"], "run.export.name": "{name}-step{step:08}"}),
        ("train_db", "--mixed_precision=fp16 --save_precision=float", {"run.precision": "fp16"}),
        ("train_db", "--mixed_precision=bf16 --full_bf16",
         {"run.precision": "bf16", "run.weight_dtype": "pure", "run.export.dtype": "bf16"}),
        ("train_network", "--log_with=all --log_tracker_name=x --logging_dir=l",
         {"run.tensorboard": True, "run.wandb.mode": "online", "run.wandb.project": "x"}),
    ],
)  # fmt: skip
def test_settings_of_a_run(script: str, words: str, expected: dict[str, Any]) -> None:
    assert changed(script, *words.split()) == expected


def test_files_of_full_training_are_in_the_output_folder() -> None:
    translated = settings("sdxl_train", "--output_name=my fox")
    assert translated["run.name"] == "my-fox"
    assert translated["run.folder"] == "out/my-fox"
    assert translated["run.export.single_file_folder"] == "out"
    assert translated["run.export.single_file"] is True


def test_changes_are_noted() -> None:
    assert "safetensors is written" in notes("train_db", "--save_model_as=ckpt")
    assert "--max_train_epochs is used" in notes("train_db", "--max_train_epochs=4", "--max_train_steps=9")
    assert "since a text encoder is trained" in notes("flux_train_network", "--cache_text_encoder_outputs")
    assert "is changed to my-fox" in notes("train_db", "--output_name=my fox")
    assert "as many blocks stay on the device as fit" in notes("flux_train", "--blocks_to_swap=18")


def test_precision_of_the_launcher_counts_without_the_option() -> None:
    translated = translate("train_db", launched=Launched(mixed_precision="bf16", launcher="accelerate"))
    assert translated.settings["run"]["precision"] == "bf16"
    assert translated.origin["run.precision"] == "the launcher (accelerate)"
    both = translate("train_db", "--mixed_precision=fp16", launched=Launched(mixed_precision="bf16"))
    assert both.settings["run"]["precision"] == "fp16"


@pytest.mark.parametrize(
    ("script", "words", "where", "code"),
    [
        ("sdxl_train_network", "--cache_text_encoder_outputs", "--cache_text_encoder_outputs", "E1017"),
        ("train_db", "--full_fp16 --mixed_precision=bf16", "--full_fp16", "E1017"),
        ("train_db", "--resume=out/last-state/", "--resume", "E1018"),
        ("train_db", "--wandb_api_key=abc", "--wandb_api_key", "E1018"),
        ("train_db", "--save_last_n_epochs=2", "--save_last_n_epochs", "E1018"),
    ],
)
def test_unsupported_runs_are_refused(script: str, words: str, where: str, code: str) -> None:
    assert [one[:2] for one in refusal(script, *words.split())] == [(where, code)]
