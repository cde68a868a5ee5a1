"""Measures models that draw the world: prompts with fixed seeds, images, and what the recognisers read off them.

    python tools/mini/measure.py average=FOLDER raw=FOLDER --untrained --out figures.json

Each model is a folder in diffusers' layout, under a name of the reader's choice. `--untrained` adds the first one with
random weights in text encoder and UNet: what is right by luck and by the VAE. Images are drawn by Mezzotint's own
sampler, image i of a kind from the noise of address (seed, i), so that models are compared on the same noise.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from mezzotint.families.sd import Family
from mezzotint.sampling.requests import Request, Sampling
from mezzotint.sampling.sample import sample
from mezzotint.settings.sections.model import ModelSettings
from mezzotint.settings.sections.sample import SampleSettings, SolverName
from mezzotint.shapes import Size
from mezzotint.weights.folder import components

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from mini import recognise, world

SEED = 7
"""Of prompts and noise; the training images have another."""

ATTRIBUTES = ("colour", "shape", "position", "relation", "count")
JUDGED: dict[world.PromptKind, tuple[str, ...]] = {
    "seen": ("colour", "shape", "position", "count"),
    "held_out": ("colour", "shape", "position", "count"),
    "relations": ("colour", "shape", "relation", "count"),
    "counts": ("colour", "shape", "count"),
}
"""What a prompt of each kind asks for."""

CHANCE: dict[str, float] = {
    "colour": 1 / len(world.COLOURS),
    "shape": 1 / len(world.SHAPES),
    "position": 1 / len(world.CENTRES),
    "relation": 1 / len(world.RELATIONS),
}
"""Of one thing, by blind choice among the world's words."""

Pixels = NDArray[np.uint8]
Prompts = Sequence[tuple[str, world.Scene]]


def load(folder: Path, *, untrained: bool = False) -> Family:
    """The model of a folder. untrained: with random text encoder and UNet; the VAE is kept."""
    family = Family.of(ModelSettings(path=folder))
    parts = family.parts()
    if untrained:
        for part, component, network in (("denoiser", "unet", "unet"), ("text_encoder", "text_encoder", "clip_text")):
            where = folder / component / "config.json"
            config = json.loads(where.read_text("utf-8"))
            fresh = components.random_network(network, config, SEED, part, where=where)  # type: ignore[arg-type]
            parts[part].load_state_dict(fresh.state_dict())
    for module in parts.values():
        module.requires_grad_(False).eval()
    return family


def images(family: Family, prompts: Prompts, settings: argparse.Namespace) -> Iterator[Pixels]:
    """One image for each prompt, in their order."""
    size = Size(world.PIXELS, world.PIXELS)
    requests = [Request(text, size, seed=settings.seed, index=number) for number, (text, _) in enumerate(prompts)]
    chosen = SampleSettings(
        steps=settings.steps, guidance=(settings.guidance,), solver=settings.solver, batch_size=settings.batch
    )
    how = Sampling(family.schedule, family.prediction, "cpu", chosen)
    return (image.pixels for image in sample(family, requests, how))


def judged(drawn: Sequence[Pixels], prompts: Prompts, kind: world.PromptKind) -> dict[str, Any]:
    """Shares of images that are as asked: by attribute, and in all that the kind asks for."""
    verdicts = [recognise.judge(pixels, scene) for pixels, (_, scene) in zip(drawn, prompts, strict=True)]
    attributes = JUDGED[kind]
    row: dict[str, Any] = {"prompts": len(prompts)}
    for name in ATTRIBUTES:
        row[name] = float(np.mean([getattr(v, name) for v in verdicts])) if name in attributes else None
    row["all"] = float(np.mean([all(getattr(v, name) for name in attributes) for v in verdicts]))
    return row


def measure(family: Family, prompts: dict[world.PromptKind, Prompts], settings: argparse.Namespace, name: str) -> Any:
    """The figures of one model, by kind of prompt."""
    figures = {}
    for kind, scenes in prompts.items():
        begin = time.process_time()
        drawn = list(images(family, scenes, settings))
        figures[kind] = judged(drawn, scenes, kind)
        print(line(name, kind, figures[kind], time.process_time() - begin), flush=True)
        if settings.sheets is not None:
            settings.sheets.mkdir(parents=True, exist_ok=True)
            sheet(drawn[:60]).save(settings.sheets / f"{name}-{kind}.png")
    return figures


def line(name: str, kind: str, row: dict[str, Any], seconds: float) -> str:
    """The figures of one model and kind for the reader."""
    shares = "  ".join(f"{key} {100 * row[key]:5.1f} %" for key in (*ATTRIBUTES, "all") if row[key] is not None)
    return f"{name:<10} {kind:<10} {row['prompts']:>4} prompts  {shares}  ({seconds:.0f} s of processor time)"


def sheet(drawn: Sequence[Pixels], columns: int = 10) -> Image.Image:
    """Images in rows, in their order."""
    side = world.PIXELS + 2
    image = Image.new("RGB", (columns * side, -(-len(drawn) // columns) * side), "white")
    for number, pixels in enumerate(drawn):
        image.paste(Image.fromarray(pixels), (number % columns * side, number // columns * side))
    return image


def main() -> None:
    parser = argparse.ArgumentParser(prog="measure.py")
    parser.add_argument("models", nargs="+", metavar="NAME=FOLDER")
    parser.add_argument("--prompts", type=int, default=500, help="of seen pairs")
    parser.add_argument("--held-out", type=int, default=200)
    parser.add_argument("--others", type=int, default=100, help="of relations, and of counts")
    parser.add_argument("--solver", choices=get_args(SolverName), default="ddim")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--guidance", type=float, default=3.0)
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--batch", type=int, default=50)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--untrained", action="store_true")
    parser.add_argument("--sheets", type=Path, help="a folder for sheets of the first images")
    parser.add_argument("--out", type=Path, help="the figures as JSON")
    settings = parser.parse_args()
    torch.set_num_threads(settings.threads)
    folders = {name: Path(folder) for name, folder in (model.split("=", 1) for model in settings.models)}
    prompts: dict[world.PromptKind, Prompts] = {
        "seen": world.prompts("seen", settings.prompts, settings.seed),
        "held_out": world.prompts("held_out", settings.held_out, settings.seed),
        "relations": world.prompts("relations", settings.others, settings.seed),
        "counts": world.prompts("counts", settings.others, settings.seed),
    }
    prompts = {kind: scenes for kind, scenes in prompts.items() if scenes}
    models = {name: measure(load(folder), prompts, settings, name) for name, folder in folders.items()}
    if settings.untrained:
        first = next(iter(folders.values()))
        models["untrained"] = measure(load(first, untrained=True), prompts, settings, "untrained")
    how = {key: getattr(settings, key) for key in ("solver", "steps", "guidance", "seed")}
    if settings.out is not None:
        figures = {"settings": how, "chance": CHANCE, "models": models}
        settings.out.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
