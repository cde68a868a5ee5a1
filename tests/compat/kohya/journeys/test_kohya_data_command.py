"""A data set file, sample prompts and a GUI file of sd-scripts, on a tiny model and a few images."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from mezzotint.cli import main

IMAGES = Path(__file__).parents[3] / "parity" / "data" / "diffusers" / "shapes6"
OURS = ("model.weights=random", "data.cache.path=cache", "run.device=cpu", "run.threads=1", "sample.steps=1")
SETS = """
[general]
caption_extension = ".txt"
shuffle_caption = true
bucket_reso_steps = 16
min_bucket_reso = 32
[[datasets]]
resolution = 64
enable_bucket = true
batch_size = 2
  [[datasets.subsets]]
  image_dir = "subject"
  class_tokens = "sks shape"
  num_repeats = 2
  conditioning_data_dir = "masks"
  [[datasets.subsets]]
  image_dir = "class"
  is_reg = true
  class_tokens = "shape"
[[datasets]]
resolution = [96, 64]
  [[datasets.subsets]]
  metadata_file = "style/meta.json"
  image_dir = "style"
"""
PROMPTS = '[prompt]\nwidth = 64\nheight = 64\nsample_steps = 1\n[[prompt.subset]]\nprompt = "sks shape"\n'


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for number, name in enumerate(("subject", "class", "style")):
        (tmp_path / name).mkdir()
        shutil.copy(IMAGES / f"000{number}.png", tmp_path / name / "a.png")
    (tmp_path / "subject" / "a.txt").write_text("one, two")
    (tmp_path / "style" / "meta.json").write_text(json.dumps({"a": {"caption": "of the file"}}))
    (tmp_path / "masks").mkdir()
    with Image.open(tmp_path / "subject" / "a.png") as image:
        Image.new("L", image.size, 255).save(tmp_path / "masks" / "a.png")
    return tmp_path


def train(*words: str) -> int:
    return main(["train", "--as", "kohya", *OURS, "--", *words])


def test_sets_of_a_file_are_trained_and_prompts_are_sampled(here: Path) -> None:
    Path("data.toml").write_text(SETS, "utf-8")
    Path("prompts.toml").write_text(PROMPTS, "utf-8")
    words = (
        "--pretrained_model_name_or_path=tiny-sd", "--network_module=networks.lora", "--output_dir=out",
        "--output_name=fox", "--max_train_steps=2", "--max_data_loader_n_workers=0", "--learning_rate=1e-3",
        "--seed=3", "--dataset_config=data.toml", "--masked_loss", "--sample_prompts=prompts.toml",
        "--sample_every_n_steps=2",
    )  # fmt: skip
    assert train("train_network.py", *words) == 0
    assert (here / "out" / "fox.safetensors").is_file()
    assert list((here / "out" / "fox").rglob("*.png")), "previews"


def test_file_of_the_gui_is_trained(here: Path) -> None:
    (here / "images").mkdir()
    (here / "subject").rename(here / "images" / "2_sks shape")
    tree: dict[str, Any] = {
        "LoRA_type": "Standard", "pretrained_model_name_or_path": "tiny-sd", "train_data_dir": "images",
        "max_resolution": "64,64", "output_dir": "out", "output_name": "gui", "epoch": 1, "max_train_steps": 0,
        "network_dim": 2, "network_alpha": 1, "unet_lr": 1e-3, "text_encoder_lr": 0, "learning_rate": 1e-3,
        "max_data_loader_n_workers": "0", "optimizer": "AdamW", "optimizer_args": "", "caption_extension": ".txt",
        "noise_offset_type": "Original", "seed": "7", "sample_prompts": "", "clip_skip": "1",
    }  # fmt: skip
    Path("gui.json").write_text(json.dumps(tree), "utf-8")
    assert train("gui.json") == 0
    assert (here / "out" / "gui.safetensors").is_file()
