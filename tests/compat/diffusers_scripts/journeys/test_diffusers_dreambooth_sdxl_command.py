"""The command of diffusers' DreamBooth script for SDXL, on a tiny SDXL and six images."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from diffusers.pipelines.stable_diffusion_xl.pipeline_stable_diffusion_xl import StableDiffusionXLPipeline
from PIL import Image
from safetensors.torch import load_file

from mezzotint.cli import main

IMAGES = Path(__file__).parents[3] / "parity" / "data" / "diffusers" / "shapes6"
LINE = [
    "accelerate", "launch", "train_dreambooth_lora_sdxl.py", "--pretrained_model_name_or_path=model",
    "--instance_data_dir=images", "--instance_prompt=a photo of sks", "--with_prior_preservation",
    "--class_data_dir=kind", "--class_prompt=a", "--num_class_images=2", "--resolution=64", "--train_batch_size=1",
    "--max_train_steps=2", "--seed=7", "--output_dir=cat", "--checkpointing_steps=2", "--train_text_encoder",
    "--output_kohya_format", "--rank=3", "--random_flip", "--learning_rate=1e-3",
]  # fmt: skip
OURS = (
    "data.cache.path=cache", "run.device=cpu", "run.threads=1", "run.tensorboard=false", "sample.steps=1",
    "data.mask.source=files",
)  # fmt: skip


@pytest.mark.slow
def test_dreambooth_writes_lora_files_that_diffusers_loads(
    tmp_path: Path, sdxl_folder: Path, monkeypatch: Any, capsys: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(IMAGES, tmp_path / "images", ignore=lambda folder, names: [n for n in names if "png" not in n])
    (tmp_path / "kind").mkdir()
    Image.new("L", Image.open("images/0000.png").size, 0).save("images/0000-masklabel.png")
    line = [word.replace("=model", f"={sdxl_folder}") for word in LINE]
    assert main(["train", "--as", "diffusers-dreambooth-lora-sdxl", *OURS, "--", *line]) == 0
    assert "1 with a mask" in capsys.readouterr().out
    assert sorted(path.name for path in (tmp_path / "kind").iterdir()) == ["class-00000.png", "class-00001.png"]
    steps = [json.loads(text) for text in (tmp_path / "cat" / "metrics.jsonl").read_text().splitlines()]
    assert [step["samples"] for step in steps if "loss" in step] == [2, 2]
    tensors = load_file(tmp_path / "cat" / "pytorch_lora_weights.safetensors")
    assert {name.split(".")[0] for name in tensors} == {"unet", "text_encoder", "text_encoder_2"}
    kohya = load_file(tmp_path / "cat" / "cat.safetensors")
    assert {name.partition("_")[2].partition("_")[0] for name in kohya} == {"unet", "te1", "te2"}
    pipe: Any = StableDiffusionXLPipeline.from_pretrained(str(sdxl_folder), local_files_only=True)
    before = pipe.encode_prompt("a", device="cpu")[0]
    pipe.load_lora_weights("cat", weight_name="pytorch_lora_weights.safetensors")
    assert not torch.equal(pipe.encode_prompt("a", device="cpu")[0], before)
