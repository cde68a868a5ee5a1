"""The dialect `diffusers-lora-sdxl`: what it does otherwise than `diffusers-lora`."""

from __future__ import annotations

from dialect_cases.diffusers_lora import LINES as SD
from dialect_cases.diffusers_lora_sdxl import LINES
from foreign_lines import flat


def test_differs_only_in_the_model_and_its_autoencoder() -> None:
    words = ["--rank=8", "--resolution=512", "--mixed_precision=fp16", "--snr_gamma=5", "--seed=3"]
    lora, xl = (flat(one.translate(*words).settings) for one in (SD, LINES))
    assert {path for path in lora.keys() | xl.keys() if lora.get(path) != xl.get(path)} == {
        "model.path", "model.family", "run.vae_dtype", "sample.steps", "sample.guidance",
    }  # fmt: skip
    assert not {"data.cache.latents", "data.cache.text"} & xl.keys(), "nothing is cached, as in the script"


def test_both_text_encoders_are_trained_on_request() -> None:
    assert LINES.translate().settings["model"]["train"] == ["denoiser"]
    recipe = LINES.recipe("--train_text_encoder", "--rank=2")
    assert recipe.model.train == ("denoiser", "text_encoder", "text_encoder_2")
    assert recipe.model.adapter.targets == ("attention",)
