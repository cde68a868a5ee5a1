"""Trains the VAE of mezzotint-mini from scratch: 64 × 64 pixels to 8 × 8 × 4 latents and back, a million parameters.

    python tools/mini/train_vae.py FOLDER --steps 16000 --threads 1

Learns from images of the world and, one in six, from wild ones; from lively crops first, from whole images at
last. FOLDER gets `vae/` (a diffusers AutoencoderKL of the averaged weights), `vae_curve.csv`, `log.txt` and
`state.safetensors`; killed at any moment, the same command goes on where the last state was saved. Every draw is
addressed by the step, so that the course does not depend on stops. With more `--steps` a finished course goes on.

The loss is |x̂ − x| + (x̂ − x)² + |∇x̂ − ∇x| + 1e-6 KL, pixels in [−1, 1], KL summed over the 256 latents of a whole
image. At the end the latents are brought to mean 0 and deviation 1 in each channel over the world; this is folded
exactly into the 1 × 1 convolutions beside them, so that `scaling_factor` is 1.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from diffusers import AutoencoderKL
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from mezzotint import draws, durable
from mezzotint.diffusion import noise

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from mini import wild, world

CHANNELS = (16, 16, 32, 80)
SEED = 1
WORLD_IMAGES, WILD_IMAGES = 12_000, 4_000
WHOLE_SHARE = 0.15
"""The last part of the steps sees whole images, those before it crops: less work an image, and more of it things."""
CROP = 32
CROPS, WHOLES = 24, 8
"""Images in a batch; one in six is wild."""
LEARNING_RATE, WARMUP_STEPS = 2e-3, 100
EDGE_WEIGHT = 1.0
KL_WEIGHT = 1e-6
EMA_DECAY = 0.999
SAVE_EVERY_SECONDS = 120.0


class Float32GroupNorm(nn.GroupNorm):
    """Group norm in float32 under autocast: the bfloat16 one of the CPU takes four times as long to go back."""

    def forward(self, input: Tensor) -> Tensor:
        """input: (B, C, H, W). Returns its shape and type."""
        return F.group_norm(input.float(), self.num_groups, self.weight, self.bias, self.eps).to(input.dtype)


def build() -> AutoencoderKL:
    """The network with random weights drawn at fixed addresses."""
    with torch.random.fork_rng():
        torch.manual_seed(draws.key(SEED, "mini vae weights"))
        return AutoencoderKL(
            down_block_types=("DownEncoderBlock2D",) * len(CHANNELS),
            up_block_types=("UpDecoderBlock2D",) * len(CHANNELS),
            block_out_channels=CHANNELS,
            layers_per_block=1,
            norm_num_groups=4,
            latent_channels=4,
            sample_size=world.PIXELS,
            scaling_factor=1.0,
        ).to(memory_format=torch.channels_last)


class Course:
    """The network while it learns: its weights, their average, the optimizer and the number of steps done."""

    def __init__(self, steps: int) -> None:
        self.vae = build()
        for module in self.vae.modules():
            if type(module) is nn.GroupNorm:
                module.__class__ = Float32GroupNorm
        self.names = [name for name, _ in self.vae.named_parameters()]
        self.weights = list(self.vae.parameters())
        self.average = [weight.detach().clone() for weight in self.weights]
        self.optimizer = torch.optim.AdamW(self.weights, lr=0.0, betas=(0.9, 0.99), weight_decay=1e-4, fused=True)
        self.steps = steps
        self.done = 0

    def step(self, pixels: Tensor) -> dict[str, float]:
        """One step on (B, 3, H, W) pixels in [−1, 1]. Returns the parts of the loss."""
        where = draws.keys(SEED, "mini vae noise", self.done, np.arange(len(pixels)))
        eps = noise.normal(torch.from_numpy(where.view(np.int64)), (4, pixels.shape[2] // 8, pixels.shape[3] // 8))
        with torch.autocast("cpu", dtype=torch.bfloat16):
            mean, log_variance = self.vae.quant_conv(self.vae.encoder(pixels)).float().chunk(2, dim=1)
            log_variance = log_variance.clamp(-20, 10)
            latents = mean + eps * torch.exp(0.5 * log_variance)
            back = self.vae.decoder(self.vae.post_quant_conv(latents)).float()
        error = back - pixels
        parts = {
            "l1": error.abs().mean(),
            "l2": error.square().mean(),
            "edge": (error.diff(dim=2).abs().mean() + error.diff(dim=3).abs().mean()) / 2,
            "kl": 0.5 * (mean.square() + log_variance.exp() - 1 - log_variance).mean() * 256,
        }
        (parts["l1"] + parts["l2"] + EDGE_WEIGHT * parts["edge"] + KL_WEIGHT * parts["kl"]).backward()
        norm = nn.utils.clip_grad_norm_(self.weights, 1.0)
        self._update()
        values = {name: part.item() for name, part in parts.items()}
        deviation = torch.exp(0.5 * log_variance).mean() / mean.std()
        return values | {"gradient_norm": norm.item(), "posterior_std_share": deviation.item()}

    def _update(self) -> None:
        self.optimizer.param_groups[0]["lr"] = self.learning_rate()
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.done += 1
        decay = min(EMA_DECAY, (1 + self.done) / (10 + self.done))
        torch._foreach_lerp_(self.average, [weight.detach() for weight in self.weights], 1 - decay)

    def learning_rate(self) -> float:
        """A linear rise, then half a cosine down to nothing at the last step."""
        rise = min(1.0, (self.done + 1) / WARMUP_STEPS)
        return LEARNING_RATE * rise * 0.5 * (1 + math.cos(math.pi * min(1.0, self.done / self.steps)))

    def save(self, path: Path) -> None:
        """Writes everything that the next step depends on, so that the file is whole at every moment."""
        tensors: dict[str, Tensor] = {}
        for name, weight, average in zip(self.names, self.weights, self.average, strict=True):
            tensors |= {f"weight.{name}": weight.detach(), f"average.{name}": average}
            kept = self.optimizer.state[weight]
            tensors |= {f"first.{name}": kept["exp_avg"], f"second.{name}": kept["exp_avg_sq"]}
        aside = path.with_suffix(".partial")
        plain = {name: tensor.contiguous() for name, tensor in tensors.items()}
        save_file(plain, aside, metadata={"done": str(self.done), "steps": str(self.steps)})
        durable.sync_file(aside)
        aside.replace(path)
        durable.sync_folder(path.parent)

    def load(self, path: Path) -> None:
        """Goes on from a saved state. Raises SystemExit when its course was longer; in a longer one the rate rises."""
        with safe_open(path, "pt") as file:
            metadata = file.metadata()
            if int(metadata["steps"]) > self.steps:
                sys.exit(
                    f"{path} is of a course of {metadata['steps']} steps; give --steps {metadata['steps']} or more"
                )
            self.done = int(metadata["done"])
            for name, weight, average in zip(self.names, self.weights, self.average, strict=True):
                weight.data.copy_(file.get_tensor(f"weight.{name}"))
                average.copy_(file.get_tensor(f"average.{name}"))
                self.optimizer.state[weight] = {
                    "step": torch.tensor(float(self.done)),
                    "exp_avg": torch.empty_like(weight).copy_(file.get_tensor(f"first.{name}")),
                    "exp_avg_sq": torch.empty_like(weight).copy_(file.get_tensor(f"second.{name}")),
                }

    def averaged(self) -> AutoencoderKL:
        """A network of the averaged weights, in plain float32 operations."""
        vae = build().eval()
        for weight, average in zip(vae.parameters(), self.average, strict=True):
            weight.data.copy_(average)
        return vae


def to_pixels(images: np.ndarray) -> Tensor:
    """(B, 64, 64, 3) uint8 → (B, 3, 64, 64) float32 in [−1, 1]."""
    return torch.from_numpy(images).permute(0, 3, 1, 2).float().div_(127.5).sub_(1.0)


def to_images(pixels: Tensor) -> np.ndarray:
    """(B, 3, 64, 64) in [−1, 1] → (B, 64, 64, 3) uint8."""
    levels = pixels.detach().float().clamp(-1, 1).add(1.0).mul(127.5).round().to(torch.uint8)
    return levels.permute(0, 2, 3, 1).contiguous().numpy()


def batches(first_step: int, steps: int) -> Iterator[Tensor]:
    """The pixels of each step, from this one on: (24, 3, 32, 32) crops, at last (8, 3, 64, 64) whole images."""
    scenes = sorted((world.scene(index, SEED) for index in range(WORLD_IMAGES)), key=_contrast)
    known = np.stack([np.asarray(world.draw(scene)) for scene in scenes])
    unknown = np.stack([np.asarray(wild.wild(index, SEED)) for index in range(WILD_IMAGES)])
    for step in range(first_step, steps):
        whole = step >= (1 - WHOLE_SHARE) * steps
        count = WHOLES if whole else CROPS
        even = draws.uniforms(draws.keys(SEED, "mini vae batch", step, np.arange(count)))
        strange = count // 6
        # squared: faint things are the hard ones, and drawn oftener
        images = [unknown[int(place * WILD_IMAGES)] for place in even[:strange]]
        images += [known[int(place**2 * WORLD_IMAGES)] for place in even[strange:]]
        if not whole:
            images = [_crop(image, draws.key(SEED, "mini vae crop", step, n)) for n, image in enumerate(images)]
        yield to_pixels(np.stack(images))


def _contrast(scene: world.Scene) -> float:
    """The distance of its faintest thing's colour to the ground, in RGB levels."""
    ground = world.BACKGROUNDS[scene.background]
    return min(math.dist(world.COLOURS[thing.colour], ground) for thing in scene.things)


def _crop(image: np.ndarray, address: int) -> np.ndarray:
    """The liveliest of three crops at random places."""
    reach = world.PIXELS - CROP + 1
    corners = [
        (draws.below(draws.key(address, "row", n), reach), draws.below(draws.key(address, "column", n), reach))
        for n in range(3)
    ]
    crops = [image[row : row + CROP, column : column + CROP] for row, column in corners]
    return max(crops, key=lambda crop: float(crop.reshape(-1, 3).std(axis=0).sum()))


@torch.no_grad()
def standardise(vae: AutoencoderKL, pixels: Tensor) -> None:
    """Brings each latent channel to mean 0 and deviation 1 over these pixels, and sets `scaling_factor`.

    The decoder sees what it saw before: what the first 1 × 1 convolution takes away, the second one gives back. The
    deviation counts the posterior's own, so that sampled latents have deviation 1.
    """
    mean, log_variance = vae.quant_conv(vae.encoder(pixels)).chunk(2, dim=1)
    centre = mean.mean(dim=(0, 2, 3))
    spread = (mean.var(dim=(0, 2, 3)) + log_variance.exp().mean(dim=(0, 2, 3))).sqrt()
    first, second = vae.quant_conv, vae.post_quant_conv
    second.bias += second.weight[:, :, 0, 0] @ centre
    second.weight *= spread[None, :, None, None]
    first.bias[:4] = (first.bias[:4] - centre) / spread
    first.weight[:4] /= spread[:, None, None, None]
    first.bias[4:] -= 2 * spread.log()
    vae.register_to_config(scaling_factor=1.0)


def publish(course: Course, folder: Path) -> None:
    """Writes the averaged network as FOLDER/vae, in float32."""
    vae = course.averaged()
    images = np.stack([np.asarray(world.draw(world.scene(index, SEED + 1))) for index in range(500)])
    standardise(vae, to_pixels(images))
    aside = folder / "vae.partial"
    shutil.rmtree(aside, ignore_errors=True)
    vae.to(memory_format=torch.contiguous_format).save_pretrained(aside)
    config = json.loads((aside / "config.json").read_text())
    config.pop("_name_or_path", None)
    durable.write_json(aside / "config.json", config)
    shutil.rmtree(folder / "vae", ignore_errors=True)
    aside.replace(folder / "vae")


def train(folder: Path, steps: int, minutes: float | None) -> None:
    """Learns until the last step, or until the minutes are over, and publishes."""
    folder.mkdir(parents=True, exist_ok=True)
    course = Course(steps)
    if (folder / "state.safetensors").exists():
        course.load(folder / "state.safetensors")
    began = saved = time.monotonic()
    recent: list[dict[str, float]] = []
    source = batches(course.done, steps)
    while course.done < steps and (minutes is None or time.monotonic() - began < 60 * minutes):
        recent.append(course.step(next(source)))
        if course.done % 100 == 0:
            _log(folder, course, recent, time.monotonic() - began)
            recent = []
        if time.monotonic() - saved > SAVE_EVERY_SECONDS:
            course.save(folder / "state.safetensors")
            publish(course, folder)
            saved = time.monotonic()
    course.save(folder / "state.safetensors")
    publish(course, folder)


def _log(folder: Path, course: Course, recent: Sequence[dict[str, float]], seconds: float) -> None:
    means = {name: float(np.mean([values[name] for values in recent])) for name in recent[0]}
    row = {"step": course.done, "seconds": round(seconds, 1), "learning_rate": course.learning_rate()} | means
    curve = folder / "vae_curve.csv"
    if not curve.exists():
        curve.write_text(",".join(row) + "\n")
    with curve.open("a") as file:
        file.write(",".join(f"{value:.6g}" for value in row.values()) + "\n")
    with (folder / "log.txt").open("a") as file:
        file.write(" ".join(f"{name}={value:.5g}" for name, value in row.items()) + "\n")


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--steps", type=int, default=16_000)
    parser.add_argument("--minutes", type=float, help="stop after so many; the same command goes on")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args(arguments)
    torch.set_num_threads(options.threads)
    train(options.folder, options.steps, options.minutes)


if __name__ == "__main__":
    main()
