"""Expectations of the flags of `diffusers-instruct-pix2pix-sdxl`."""

from __future__ import annotations

from typing import Any

from dialect_cases import diffusers_instruct_pix2pix as sd
from foreign_lines import Lines, without

BAREST = ("--pretrained_model_name_or_path=sdxl", "--train_data_dir=pairs")

DOCUMENTED: dict[str, Any] = without(sd.DOCUMENTED, "val_image_url", "validation_epochs") | {
    "pretrained_vae_model_name_or_path": None, "vae_precision": "fp32", "val_image_url_or_path": None,
    "validation_steps": 100, "crops_coords_top_left_h": 0, "crops_coords_top_left_w": 0,
}  # fmt: skip

EXPECTED: dict[str, Any] = sd.EXPECTED | {"model.path": "sdxl", "model.family": "sdxl", "run.vae_dtype": "fp32"}


def of_previews(case: tuple[list[str], dict[str, Any]]) -> tuple[list[str], dict[str, Any]]:
    """A case of the other script, with this one's flag of the image and its interval."""
    words, expected = case
    return [word.replace("--val_image_url=", "--val_image_url_or_path=") for word in words], expected | {
        "run.preview.every": "100 steps"
    }


ACTS: dict[str, tuple[list[str], dict[str, Any]]] = without(sd.ACTS, "val_image_url", "validation_epochs") | {
    "pretrained_vae_model_name_or_path": (
        ["--pretrained_vae_model_name_or_path=fixed"], {"model.vae": "fixed", "run.vae_dtype": "same"},
    ),
    "vae_precision": (["--vae_precision=bf16"], {"run.vae_dtype": "bf16"}),
    "val_image_url_or_path": of_previews(sd.ACTS["val_image_url"]),
    "validation_prompt": of_previews(sd.ACTS["validation_prompt"]),
    "num_validation_images": of_previews(sd.ACTS["num_validation_images"]),
    "validation_steps": (
        ["--validation_prompt=a", "--val_image_url_or_path=cat.png", "--num_validation_images=1",
         "--validation_steps=3"],
        {"sample.prompts": ["a"], "sample.conditions.source": "cat.png", "run.preview.every": "3 steps"},
    ),
    "report_to": (
        ["--report_to=wandb"],
        {"run.tensorboard": False, "run.wandb.mode": "online", "run.wandb.project": "instruct-pix2pix-xl"},
    ),
}  # fmt: skip

LINES = Lines(
    "diffusers-instruct-pix2pix-sdxl",
    barest=BAREST,
    defaults=DOCUMENTED,
    settings=EXPECTED,
    acts=ACTS,
    impossible=(
        *sd.IMPOSSIBLE, (["--crops_coords_top_left_h=8"], "--crops_coords_top_left_h"),
        (["--vae_precision=fp8"], "--vae_precision"),
        (["--validation_prompt=a", "--val_image_url_or_path=http://example.org/cat.png"], "--val_image_url_or_path"),
    ),
    files={"cat.png": "", "dog.png": ""},
)  # fmt: skip
