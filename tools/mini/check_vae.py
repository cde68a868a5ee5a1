"""The gate before any UNet: what the recognisers read from the VAE's reconstructions, and a sheet to look at.

    python tools/mini/check_vae.py FOLDER/vae --images 1000

Uses the weights as they are shipped, rounded to float16, and images of a world that was never trained on. Prints
the shares, writes them to FOLDER/vae_check.json and originals above reconstructions to FOLDER/vae_sheet.png. Ends
with 1 when colour, shape or position of the world's things is right in less than 99 of 100.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from diffusers import AutoencoderKL
from PIL import Image

from mezzotint import durable

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from mini import recognise, wild, world
from mini.train_vae import to_images, to_pixels
from mini.world import Scene

LEAST = 0.99
SEED = 1001
"""The seed of the judged world; training has another."""
QUESTIONS = ("colour", "shape", "position", "count", "relation", "all")


def read(folder: Path) -> AutoencoderKL:
    """The VAE of a folder, its weights rounded to float16, its operations in float32."""
    vae = AutoencoderKL.from_pretrained(folder).eval()
    for weight in vae.parameters():
        weight.data = weight.data.half().float()
    return vae


@torch.no_grad()
def reconstruct(vae: AutoencoderKL, images: np.ndarray) -> tuple[np.ndarray, torch.Tensor]:
    """Through the VAE and back by the posterior's mean: (B, 64, 64, 3) uint8 images and (B, 8, 8, 8) moments."""
    back, moments = [], []
    for part in np.array_split(images, max(1, len(images) // 50)):
        posterior = vae.encode(to_pixels(part)).latent_dist
        back.append(to_images(vae.decode(posterior.mean).sample))
        moments.append(posterior.parameters)
    return np.concatenate(back), torch.cat(moments)


def drawn(scenes: Sequence[Scene]) -> np.ndarray:
    """(B, 64, 64, 3) uint8."""
    return np.stack([np.asarray(world.draw(scene)) for scene in scenes])


def shares(images: np.ndarray, scenes: Sequence[Scene]) -> dict[str, float]:
    """For each question the part of the images that answer it rightly; of backgrounds too."""
    verdicts = [recognise.judge(image, scene) for image, scene in zip(images, scenes, strict=True)]
    grounds = [recognise.background(image) for image in images]
    right = {name: float(np.mean([getattr(verdict, name) for verdict in verdicts])) for name in QUESTIONS}
    same = [ground == scene.background for ground, scene in zip(grounds, scenes, strict=True)]
    return right | {"background": float(np.mean(same))}


def check(folder: Path, images: int) -> dict[str, dict[str, float]]:
    """Judges the VAE of a folder. Returns shares for the world and for wugs, and figures of error and latents."""
    vae = read(folder)
    scenes = [world.scene(index, SEED) for index in range(images)]
    wugs = world.wug_scenes() + [scene for _, scene in world.wug_prompts(88)]
    before, wug_before = drawn(scenes), drawn(wugs)
    after, moments = reconstruct(vae, before)
    wug_after, _ = reconstruct(vae, wug_before)
    mean, log_variance = moments.chunk(2, dim=1)
    figures = {
        "l1_levels": float(np.abs(after.astype(float) - before).mean()),
        "latent_std": float(mean.std()),
        "posterior_std": float(log_variance.mul(0.5).exp().mean()),
        "largest_latent": float(mean.abs().max()),
        "scaling_factor": float(vae.config.scaling_factor),
        "parameters": float(sum(weight.numel() for weight in vae.parameters())),
    }
    unknown = np.stack([np.asarray(wild.wild(index, SEED)) for index in range(16)])
    _sheet(before[:32], after[:32], wug_before[:16], wug_after[:16], unknown, reconstruct(vae, unknown)[0]).save(
        folder.parent / "vae_sheet.png"
    )
    return {"world": shares(after, scenes), "wug": shares(wug_after, wugs), "figures": figures}


def _sheet(*rows: np.ndarray) -> Image.Image:
    """Originals and reconstructions in turn, sixteen images a row, twice their size."""
    lines = []
    for before, after in zip(rows[::2], rows[1::2], strict=True):
        for start in range(0, len(before), 16):
            lines += [np.concatenate(list(part[start : start + 16]), axis=1) for part in (before, after)]
    sheet = Image.fromarray(np.concatenate(lines))
    return sheet.resize((sheet.width * 2, sheet.height * 2), Image.Resampling.NEAREST)


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--images", type=int, default=1000)
    options = parser.parse_args(arguments)
    by_world = check(options.folder, options.images)
    durable.write_json(options.folder.parent / "vae_check.json", by_world)
    for name, values in by_world.items():
        print(name, " ".join(f"{question}={value:.4g}" for question, value in values.items()))
    sys.exit(0 if min(by_world["world"][name] for name in ("colour", "shape", "position")) >= LEAST else 1)


if __name__ == "__main__":
    main()
