"""Training compared with a plain loop that does what diffusers' script does: same start, data and settings, but other
random numbers. Both must learn the same within the noise between seeds.

Compared is the loss on held-out images at fixed timesteps and noise, computed by one function for both. A loop with one
wrong setting must have another loss, or the comparison would show nothing.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from diffusers import AutoencoderKL, DDPMScheduler, UNet2DConditionModel
from PIL import Image, ImageDraw
from torch import Tensor
from torch.nn import functional
from transformers import CLIPTextModel, CLIPTokenizer

from mezzotint import draws
from mezzotint.cli import main

SEEDS, STEPS, BATCH, SIDE, RATE = range(3), 25, 4, 32, 2e-3
TRAINED, HELD = 12, 8


# --- the world --------------------------------------------------------------------------------------------------------


def make_image(number: int) -> tuple[Image.Image, str]:
    """One of two shapes in a colour of its own, on another; with its caption."""
    red, green, blue, dark = (draws.below(draws.key(0, "colour", number, c), 256) for c in range(4))
    image = Image.new("RGB", (SIDE + 8 * (number % 2), SIDE), (dark // 3, dark // 3, dark // 2))
    pen, shape = ImageDraw.Draw(image), ("circle", "square")[number % 2]
    draw = pen.ellipse if shape == "circle" else pen.rectangle
    draw((6, 6, 26, 26), fill=(red, green, blue))
    return image, f"a {('red', 'green', 'blue')[max(range(3), key=(red, green, blue).__getitem__)]} {shape}"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with images and their metadata.jsonl."""
    root = tmp_path_factory.mktemp("plain")
    (root / "images").mkdir()
    lines = []
    for number in range(TRAINED):
        image, caption = make_image(number)
        image.save(root / "images" / f"{number:02}.png")
        lines.append(json.dumps({"file_name": f"{number:02}.png", "text": caption}))
    (root / "images" / "metadata.jsonl").write_text("\n".join(lines))
    return root


class Parts:
    """The stock library's parts of the model, as the script loads them."""

    def __init__(self, model: Path) -> None:
        self.model = model
        of = {"pretrained_model_name_or_path": model, "local_files_only": True}
        self.vae = AutoencoderKL.from_pretrained(subfolder="vae", **of).requires_grad_(False)
        self.text = CLIPTextModel.from_pretrained(subfolder="text_encoder", **of).requires_grad_(False)
        self.tokenizer = CLIPTokenizer.from_pretrained(subfolder="tokenizer", **of)
        self.schedule = DDPMScheduler.from_pretrained(subfolder="scheduler", **of)

    def unet(self, folder: Path | None = None) -> Any:
        """The initial denoiser, or one read from another folder."""
        folder = folder or self.model / "unet"
        return UNet2DConditionModel.from_pretrained(folder, local_files_only=True)

    def ids(self, captions: list[str]) -> Tensor:
        encoded = self.tokenizer(captions, max_length=77, padding="max_length", truncation=True, return_tensors="pt")
        ids: Tensor = encoded.input_ids
        return ids


@pytest.fixture(scope="module")
def parts(shallow_sd: Path) -> Parts:
    return Parts(shallow_sd)


def pixels_of(image: Image.Image) -> Tensor:
    """Resized by its shorter side, cut at the centre, in [−1, 1]."""
    width, height = image.size
    scale = SIDE / min(width, height)
    image = image.resize((int(width * scale), int(height * scale)), Image.Resampling.BILINEAR)
    left, top = round((image.width - SIDE) / 2), round((image.height - SIDE) / 2)
    cut = np.asarray(image.crop((left, top, left + SIDE, top + SIDE)))
    return (torch.from_numpy(cut.copy()).permute(2, 0, 1).float() / 255 - 0.5) / 0.5


# --- the two loops ----------------------------------------------------------------------------------------------------


def plain(parts: Parts, seed: int, rate: float = RATE) -> Any:
    """The script's loop without its trimmings, on torch's own random streams. Returns the trained UNet."""
    pixels = torch.stack([pixels_of(make_image(n)[0]) for n in range(TRAINED)])
    ids = parts.ids([make_image(n)[1] for n in range(TRAINED)])
    unet = parts.unet().train()
    optimizer = torch.optim.AdamW(unet.parameters(), lr=rate, betas=(0.9, 0.999), weight_decay=1e-2, eps=1e-8)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        for rows in batches():
            flips = (torch.rand(len(rows)) < 0.5)[:, None, None, None]
            seen = torch.where(flips, pixels[rows].flip(-1), pixels[rows])
            latents = parts.vae.encode(seen).latent_dist.sample() * parts.vae.config.scaling_factor
            noise = torch.randn_like(latents)
            timesteps = torch.randint(0, parts.schedule.config.num_train_timesteps, (len(rows),))
            noisy = parts.schedule.add_noise(latents, noise, timesteps)
            predicted = unet(noisy, timesteps, parts.text(ids[rows])[0], return_dict=False)[0]
            functional.mse_loss(predicted.float(), noise.float(), reduction="mean").backward()
            torch.nn.utils.clip_grad_norm_(unet.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
    return unet


def batches() -> Iterator[Tensor]:
    """Rows of each step: every epoch shuffled anew."""
    for step in range(STEPS):
        place = step % (TRAINED // BATCH)
        if place == 0:
            order = torch.randperm(TRAINED)
        yield order[BATCH * place : BATCH * (place + 1)]


def ours(root: Path, parts: Parts, seed: int) -> Any:
    """Trains with the script's command line. Returns the UNet of the pipeline in its --output_dir."""
    out = root / f"ours-{seed}"
    line = [
        f"--pretrained_model_name_or_path={parts.model}", f"--train_data_dir={root / 'images'}", f"--seed={seed}",
        f"--resolution={SIDE}", "--center_crop", "--random_flip", f"--train_batch_size={BATCH}", f"--output_dir={out}",
        f"--max_train_steps={STEPS}", f"--learning_rate={RATE}", "--lr_scheduler=constant",
    ]  # fmt: skip
    own = (f"data.cache.path={root / 'cache'}", "run.device=cpu", "run.threads=1", "run.tensorboard=false")
    assert main(["train", "--as", "diffusers-sd", *own, "--", *line]) == 0
    return parts.unet(out / "unet")


@torch.no_grad()
def held_out_loss(parts: Parts, unet: Any) -> float:
    """On images that neither has seen, at sixteen timesteps and fixed noise."""
    numbers = range(TRAINED, TRAINED + HELD)
    latents = parts.vae.encode(torch.stack([pixels_of(make_image(n)[0]) for n in numbers])).latent_dist.mean
    latents = latents * parts.vae.config.scaling_factor
    text = parts.text(parts.ids([make_image(n)[1] for n in numbers]))[0]
    stream, losses = torch.Generator().manual_seed(7), []
    unet.eval()
    for timestep in range(31, 1000, 62):
        noise = torch.randn(latents.shape, generator=stream)
        at = torch.full((HELD,), timestep)
        predicted = unet(parts.schedule.add_noise(latents, noise, at), at, text, return_dict=False)[0]
        losses.append(float(functional.mse_loss(predicted, noise)))
    return statistics.mean(losses)


# --- the comparison ---------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_held_out_loss_equals_that_of_a_plain_loop(root: Path, parts: Parts) -> None:
    start = held_out_loss(parts, parts.unet())
    theirs = [held_out_loss(parts, plain(parts, seed)) for seed in SEEDS]
    own = [held_out_loss(parts, ours(root, parts, seed)) for seed in SEEDS]
    slower = held_out_loss(parts, plain(parts, 0, RATE / 2))
    spread = math.sqrt((statistics.variance(own) + statistics.variance(theirs)) / 2)  # of a run, between seeds
    difference = statistics.mean(own) - statistics.mean(theirs)
    errors = abs(difference) / (spread * math.sqrt(2 / len(SEEDS)))  # in standard errors of a difference of means
    wrong = abs(slower - statistics.mean(theirs)) / (spread * math.sqrt(1 + 1 / len(SEEDS)))
    print(f"\nheld-out loss: {start:.4f} at the start; ours {own}; plain {theirs}")  # shown by pytest -s
    print(f"{errors:.2f} standard errors apart; plain at half the rate: {slower:.4f}, {wrong:.1f} away")
    fall = start - statistics.mean(theirs)
    assert fall > 0.3
    assert max(own) < start - 0.9 * fall, "both learn"
    assert errors < 3, "within the noise of seeds"
    assert abs(difference) < 0.05 * fall, "however wide the noise"
    assert wrong > 4, "a wrong setting would be noticed"
