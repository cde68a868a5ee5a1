"""What kinds and ranks of adapters learn: mezzotint-mini taught the same word by each, examined, measured, drawn.

    python tools/mini/adapters.py                # trains what is missing, examines, draws
    python tools/mini/adapters.py --only rank-4
    python tools/mini/adapters.py --page         # writes the stored figures into docs/guides/adapters.md

The recipe is `mini-lora`, of 300 steps at a rate of 2e-3; a row differs from it in the words beside it. Figures end in
tools/mini/adapters.json, images in docs/images/adapters.png. Runs lie in demo/adapters/; what is there is not
trained again. A run takes some 75 CPU seconds.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from mezzotint import durable
from mezzotint.adapters import files, merging
from mezzotint.adapters.names import LayerNames
from mezzotint.families.sd import Family
from mezzotint.settings.sections.model import ModelSettings
from mezzotint.weights.files import tensor_files
from mezzotint.weights.folder.model_folder import shipped_folder

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from mini import lesson, measure

ROOT = Path(__file__).resolve().parents[2]
FIGURES = ROOT / "tools" / "mini" / "adapters.json"
SHEET = ROOT / "docs" / "images" / "adapters.png"
PAGE = ROOT / "docs" / "guides" / "adapters.md"
WORD = "<wug>"
KEPT, REPEATS = 600, (50, 1)
"""Images of the old world, and how often an epoch visits each wug and each of those."""
ASKED = 100
"""Questions of each kind that a model is asked."""
SHOWN = (0, 5, 10, 3, 4, 9)
"""Those of them that are on the sheet; and one of the old world."""

KINDS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "rank-1": ("LoRA, rank 1", ("model.adapter.rank=1",)),
    "rank-4": ("LoRA, rank 4", ("model.adapter.rank=4",)),
    "rank-16": ("LoRA, rank 16", ("model.adapter.rank=16",)),
    "rank-32": ("LoRA, rank 32", ()),
    "slower": ("the same at a quarter of the rate", ("optim.lr=5e-4",)),
    "faster": ("the same at four times the rate", ("optim.lr=8e-3",)),
    "attention": ("LoRA, rank 32, attention blocks only", ("model.adapter.targets=attention+mlp",)),
    "dora": ("DoRA, rank 16", ("model.adapter.kind=dora", "model.adapter.rank=16")),
    "lokr": ("LoKr, rank 16", ("model.adapter.kind=lokr", "model.adapter.rank=16")),
    "full": (
        "the whole UNet",
        (
            "model.train=[denoiser, tokens]", "model.tokens.words={<wug>: wug}", "optim.lr=5e-4",
            "optim.part_lr={tokens: 2e-2}", "run.preview.every=null",
        ),
    ),
}  # fmt: skip
"""What a row is called, and what it asks of the recipe `mini-lora`, the last one of `mini`."""


def main(arguments: Sequence[str] | None = None) -> int:
    """The whole tool; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=KINDS, action="append")
    parser.add_argument("--folder", type=Path, default=Path("demo/adapters"))
    parser.add_argument("--page", action="store_true")
    options = parser.parse_args(arguments)
    if options.page:
        write_page()
        return 0
    figures: dict[str, Any] = json.loads(FIGURES.read_text("utf-8")) if FIGURES.exists() else {}
    images = write_images(options.folder / "images")
    for name in options.only or KINDS:
        figures[name] = figures_of(name, options.folder, images)
        durable.write_json(FIGURES, {kind: figures[kind] for kind in KINDS if kind in figures})
        print(json.dumps({name: figures[name]}), flush=True)
    if all((options.folder / f"{name}.npz").exists() for name in KINDS):
        draw_sheet(options.folder)
    return 0


def write_images(folder: Path) -> tuple[Path, Path]:
    """The lesson's images, whose captions have the new word."""
    folders = (folder / "wugs", folder / "world") if folder.exists() else lesson.write(folder, KEPT)
    for path in folders[0].glob("*.txt"):
        text = path.read_text("utf-8")
        if WORD not in text:
            path.write_text(text.replace("wug", WORD), encoding="utf-8")
    return folders


def figures_of(name: str, place: Path, images: tuple[Path, Path]) -> dict[str, Any]:
    """Trains a row where that has not been done, and examines its average."""
    run = place / name
    words = [
        lesson.as_sets(images, REPEATS),
        f"data.cache.path={place / 'cache'}", f"run.folder={run}", "run.tensorboard=false",
        "run.steps=300", "optim.lr=2e-3", "data.captions.lines=random", *KINDS[name][1],
    ]  # fmt: skip
    began = time.monotonic()
    if not list(run.glob("exports/*-ema")):
        subprocess.run(
            [sys.executable, "-m", "mezzotint", "train", "mini" if name == "full" else "mini-lora", *words], check=True
        )
    seconds = time.monotonic() - began
    export = max(run.glob("exports/*-ema"))
    family = loaded(export)
    asked_new, asked_old = lesson.questions(ASKED, ASKED)
    prompts = [(text.replace("wug", WORD), scene) for text, scene in asked_new]
    settings = argparse.Namespace(seed=lesson.EXAM_SEED, steps=20, guidance=3.0, solver="ddim", batch=50)
    new, old = (list(measure.images(family, questions, settings)) for questions in (prompts, asked_old))
    np.savez_compressed(place / f"{name}.npz", new=np.stack([new[n] for n in SHOWN]), old=old[5])
    whole = export / "unet" / "diffusion_pytorch_model.safetensors"
    file = whole if whole.exists() else adapter_file(export)
    return {
        "new": {key: round(value, 2) for key, value in lesson.shares(new, prompts).items()},
        "old": {key: round(value, 2) for key, value in lesson.shares(old, asked_old).items()},
        "bytes": file.stat().st_size,
        "seconds": round(seconds),
    }


OTHERS = ("pytorch_lora_weights.safetensors", "learned_embeds.safetensors")
"""Files of an export beside that of the other programs."""


def adapter_file(export: Path) -> Path:
    """The adapter of an export, in kohya's names, which every kind has."""
    return next(path for path in export.glob("*.safetensors") if path.name not in OTHERS)


def loaded(export: Path) -> Family:
    """The model that an export draws with: a folder of its own, or mezzotint-mini with the adapter laid into it; and
    the new word."""
    is_whole = (export / "model_index.json").is_file()
    family = measure.load(export if is_whole else shipped_folder("mezzotint-mini"))
    if not is_whole:
        names = LayerNames(Family.files.of(ModelSettings(path=shipped_folder("mezzotint-mini"))).trainable_shapes())
        merging.merge_into(family.parts()["denoiser"], "unet", [(files.read(adapter_file(export), names), 1.0)])
    rows = tensor_files.read(export / "learned_embeds.safetensors")[WORD]
    family.add_learned_tokens({}, 1, {WORD: {"text_encoder": rows}})
    return family


# --- the sheet and the page -------------------------------------------------------------------------------------------

_TILE, _GAP, _LEFT, _TOP = 96, 4, 250, 28
BEGIN, END = "<!-- begin figures -->\n", "<!-- end figures -->"


def draw_sheet(place: Path) -> None:
    """A line of images for each row: six wugs, and a thing of the old world."""
    asked_new, asked_old = lesson.questions(ASKED, ASKED)
    heads = [asked_new[n][0].replace("wug", WORD) for n in SHOWN] + [asked_old[5][0]]
    width, height = _LEFT + len(heads) * (_TILE + _GAP), _TOP * 3 + len(KINDS) * (_TILE + _GAP)
    image = Image.new("RGB", (width, height), (255, 255, 255))
    pen, font = ImageDraw.Draw(image), ImageFont.load_default(11)
    for column, head in enumerate(heads):
        words, lines = head.split(), [""]
        for word in words:
            lines = [*lines[:-1], f"{lines[-1]} {word}".strip()] if len(lines[-1] + word) < 15 else [*lines, word]
        pen.multiline_text((_LEFT + column * (_TILE + _GAP), 4), "\n".join(lines), (30, 30, 30), font, spacing=2)
    for row, (name, (title, _)) in enumerate(KINDS.items()):
        drawn = np.load(place / f"{name}.npz")
        top = _TOP * 3 + row * (_TILE + _GAP)
        pen.text((6, top + _TILE // 2 - 8), title.replace("`", ""), (30, 30, 30), ImageFont.load_default(13))
        for column, pixels in enumerate([*drawn["new"], drawn["old"]]):
            tile = Image.fromarray(pixels).resize((_TILE, _TILE), Image.Resampling.NEAREST)
            image.paste(tile, (_LEFT + column * (_TILE + _GAP), top))
    SHEET.parent.mkdir(parents=True, exist_ok=True)
    image.save(SHEET, optimize=True)


def table() -> str:
    """The stored figures as a table."""
    figures = json.loads(FIGURES.read_text("utf-8"))
    lines = ["| | new word: shape | colour | place | all three | old world | file |", "|---|---|---|---|---|---|---|"]
    for name, (title, _) in KINDS.items():
        row = figures[name]
        new = " | ".join(f"{row['new'][key]:.0%}" for key in ("shape", "colour", "position", "all"))
        lines.append(f"| {title} | {new} | {row['old']['all']:.0%} | {row['bytes'] / 1e6:.1f} MB |")
    return "\n".join(lines).replace("%", " %") + "\n"


def write_page() -> None:
    """Puts the table between its marks."""
    head, rest = PAGE.read_text("utf-8").split(BEGIN)
    PAGE.write_text(head + BEGIN + table() + END + rest.split(END, 1)[1], encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
