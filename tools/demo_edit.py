"""`make demo-edit`: mezzotint-mini learns three edits, from pairs of images that are made here.

    python tools/demo_edit.py                      one seed: the training, the examination, a sheet of images
    python tools/demo_edit.py --seeds=1,2,3,4,5    all seeds, each beside the control; writes a table

The control is the same training without the image before the edit: the same pairs, captions, steps and seed, but a
model that is given text alone. It must fail. Everything is in `demo/edit/` and can be deleted; a finished run is not
repeated.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageDraw, ImageFont

from mezzotint import durable
from mezzotint.cli import main
from mezzotint.families.sd import Family
from mezzotint.sampling.requests import Request, Sampling
from mezzotint.sampling.sample import sample
from mezzotint.settings.sections.sample import SampleSettings
from mezzotint.shapes import Size

sys.path.insert(0, str(Path(__file__).resolve().parent))
from mini import edits, measure, world
from mini.edits import Pair, Pixels

HERE = Path("demo/edit")
SEEDS = (1, 2, 3, 4, 5)
SETTINGS = (
    "model.train=[denoiser,text_encoder]",
    "data.repeats=1",
    "data.captions.dropout=0",
    "run.steps=850",
    "run.preview.every=null",
    "optim.lr=1e-3",
    "optim.part_lr={text_encoder: 4e-3, denoiser/conv_in*: 1e-2}",
)
"""What the lesson asks of the recipe `mini` besides its images; the control has the same."""
OF_EDITS = ("model.task=edit", "data.condition_dropout=0.05")
"""What only the model that is given the image has."""
SAMPLED = SampleSettings(steps=20, guidance=(2.0,), image_guidance=2.0, solver="ddim", batch_size=50)


def run(seed: int, *, is_control: bool) -> tuple[dict[str, float], list[Pixels]]:
    """Trains one model, if it is not trained already, and examines it. Returns shares and images."""
    after, before = edits.write(HERE / "pairs", edits.pairs(edits.PAIRS, edits.TRAINING_SEED))
    folder = HERE / f"{'control' if is_control else 'edit'}-{seed}"
    words = [f"data.path={after}", f"run.folder={folder}", f"run.seed={seed}", f"data.cache.path={HERE / 'cache'}"]
    words += [] if is_control else [*OF_EDITS, f"data.conditions.source.folder={before}"]
    if main(["train", "mini", *SETTINGS, *words]) != 0:
        raise SystemExit(1)
    family = measure.load(max((folder / "exports").glob("step-*-ema")))
    chosen = edits.pairs(edits.EXAMINED, edits.EXAM_SEED)
    drawn = draw(family, chosen, is_control=is_control)
    judgements = [edits.judge(pixels, pair) for pixels, pair in zip(drawn, chosen, strict=True)]
    return edits.shares(judgements, chosen), drawn


def draw(family: Family, chosen: Sequence[Pair], *, is_control: bool) -> list[Pixels]:
    """The edited image of each pair."""
    requests = []
    for number, pair in enumerate(chosen):
        images = {} if is_control else {"source": encode(family, pair.images()[0])}
        requests.append(Request(pair.edit, Size(world.PIXELS, world.PIXELS), seed=7, index=number, images=images))
    sampling = Sampling(family.schedule, family.prediction, "cpu", SAMPLED)
    return [image.pixels for image in sample(family, requests, sampling)]


def encode(family: Family, image: Image.Image) -> torch.Tensor:
    """The latents (1, C, h, w) of an image before an edit."""
    pixels = torch.from_numpy(np.array(image, np.uint8)).permute(2, 0, 1)[None].float() / 127.5 - 1
    return family.encode_media(pixels).chunk(2, dim=1)[0]


def describe(name: str, row: dict[str, float]) -> str:
    """A line of shares."""
    return f"{name:<14}" + "   ".join(f"{key} {share:4.0%}" for key, share in row.items())


def sheet(chosen: Sequence[Pair], drawn: Sequence[Pixels], columns: int = 3, rows: int = 4) -> Image.Image:
    """Images before, the instruction, and images after, as many of each edit."""
    tile, gap, line = 128, 8, 24
    image = Image.new("RGB", (columns * (2 * tile + 3 * gap), rows * (tile + line + gap) + gap), "white")
    pen, font = ImageDraw.Draw(image), ImageFont.load_default(14)
    for number in range(columns * rows):
        left = number % columns * (2 * tile + 3 * gap) + gap
        top = number // columns * (tile + line + gap) + gap
        pair = chosen[number]
        pen.text((left, top), f"“{pair.edit}”", (30, 30, 30), font)
        for place, one in enumerate((pair.images()[0], Image.fromarray(drawn[number]))):
            resized = one.resize((tile, tile), Image.Resampling.BICUBIC)
            image.paste(resized, (left + place * (tile + gap // 2), top + line))
    return image


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", help="all of these, each beside the control")
    return parser.parse_args(arguments)


def demonstrate() -> None:
    """One seed, with a sheet of images."""
    began = time.monotonic()
    row, drawn = run(SEEDS[0], is_control=False)
    sheet(edits.pairs(edits.EXAMINED, edits.EXAM_SEED), drawn).save(HERE / "before-after.png", optimize=True)
    print(f"\n{describe('edits done', row)}")
    print(f"before and after   {HERE / 'before-after.png'}")
    print(f"{time.monotonic() - began:.0f} seconds in all")


def compare(seeds: Sequence[int]) -> None:
    """All seeds beside the control."""
    figures = {}
    for seed in seeds:
        for name, is_control in (("edit", False), ("control", True)):
            figures[f"{name} {seed}"] = run(seed, is_control=is_control)[0]
            print(describe(f"{name} {seed}", figures[f"{name} {seed}"]), flush=True)
    durable.write_json(HERE / "figures.json", figures)
    print("\n".join(describe(name, row) for name, row in figures.items()))


if __name__ == "__main__":
    seeds = parse().seeds
    if seeds:
        compare([int(text) for text in seeds.split(",")])
    else:
        demonstrate()
