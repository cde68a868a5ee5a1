"""The commands of diffusers' LoRA scripts, on tiny models and six images."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from mezzotint.cli import main

IMAGES = Path(__file__).parents[3] / "parity" / "data" / "diffusers" / "shapes6"
OURS = ("data.cache.path=cache", "run.device=cpu", "run.threads=1")
FLAGS = [
    "--pretrained_model_name_or_path=model", "--train_data_dir=images", "--resolution=64", "--center_crop",
    "--train_batch_size=2", "--max_train_steps=4", "--learning_rate=1e-3", "--seed=7", "--output_dir=fox",
    "--lr_warmup_steps=0", "--checkpointing_steps=2", "--rank=3",
]  # fmt: skip


@pytest.fixture
def here(tmp_path: Path, shallow_sd: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(shallow_sd, tmp_path / "model")
    shutil.copytree(IMAGES, tmp_path / "images")
    lines = [{"file_name": f"000{n}.png", "text": f"shape number {n}"} for n in range(6)]
    (tmp_path / "images" / "metadata.jsonl").write_text("\n".join(map(json.dumps, lines)))
    return tmp_path


@pytest.mark.slow
def test_output_dir_has_a_lora_file_that_diffusers_loads(here: Path) -> None:
    from diffusers import StableDiffusionPipeline

    assert main(["train", "--as", "diffusers-lora", *OURS, "--", "train_text_to_image_lora.py", *FLAGS]) == 0
    tensors = load_file(here / "fox" / "pytorch_lora_weights.safetensors")
    pipe = StableDiffusionPipeline.from_pretrained(here / "model", safety_checker=None)
    layers = [n for n, m in pipe.unet.named_modules() if n.rsplit(".", 1)[-1] in ("to_q", "to_k", "to_v")]
    layers += [n for n, _ in pipe.unet.named_modules() if n.endswith("to_out.0")]
    assert {name.removeprefix("unet.").split(".lora")[0] for name in tensors} == set(layers)
    assert {min(tensor.shape) for tensor in tensors.values()} == {3}
    x, t, text = torch.ones(1, 4, 8, 8), torch.tensor([500]), pipe.encode_prompt("a", "cpu", 1, False)[0]
    with torch.no_grad():
        before = pipe.unet(x, t, text).sample
        pipe.load_lora_weights("fox")
        after = pipe.unet(x, t, text).sample
    assert not torch.equal(before, after)
    more = ["--max_train_steps=5", "--resume_from_checkpoint=latest"]
    longer = ("run.allow_change=[run.steps]", *OURS)
    line = [flag for flag in FLAGS if not flag.startswith("--max_train_steps")] + more
    assert main(["train", "--as", "diffusers-lora", *longer, "--", *line]) == 0
    losses = [json.loads(line).get("loss") for line in (here / "fox" / "metrics.jsonl").read_text().splitlines()]
    assert len([loss for loss in losses if loss is not None]) == 5, "and not one more"


def test_missing_class_images_are_generated_for_prior_preservation(here: Path) -> None:
    """Two images are missing and generated; each batch has an image of both; the loss of each is logged."""
    line = [
        "train_dreambooth_lora.py", "--pretrained_model_name_or_path=model", "--instance_data_dir=images",
        "--instance_prompt=a photo of sks", "--with_prior_preservation", "--class_data_dir=kind", "--class_prompt=a",
        "--num_class_images=2", "--resolution=64", "--train_batch_size=1", "--max_train_steps=3", "--seed=7",
        "--output_dir=cat", "--checkpointing_steps=2",
    ]  # fmt: skip
    (here / "images" / "metadata.jsonl").unlink()
    (here / "kind").mkdir()
    ours = (*OURS, "sample.steps=2")
    assert main(["train", "--as", "diffusers-dreambooth-lora", *ours, "--", *line]) == 0
    assert sorted(path.name for path in (here / "kind").glob("*.png")) == ["class-00000.png", "class-00001.png"]
    assert load_file(here / "cat" / "pytorch_lora_weights.safetensors")
    steps = [json.loads(line) for line in (here / "cat" / "metrics.jsonl").read_text().splitlines()]
    logged = [step for step in steps if "loss" in step]
    assert len(logged) == 3
    both = [key for key in logged[-1] if key.startswith("loss") and key != "loss"]
    assert both, logged[-1]
    assert [step["samples"] for step in logged] == [2, 2, 2], "a pair a step"
