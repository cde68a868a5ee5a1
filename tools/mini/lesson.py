"""A lesson for mezzotint-mini: what it is taught, how it is examined, and a sheet of before and after.

The lesson is the word `wug`, on the twelve images of `world.wug_scenes`, beside images of the world that the model
knows already, so that it does not forget them. The examination asks for wugs in colours and at places that none of the
twelve shows, and for things of the old world; `recognise` reads the answers. Used by the demonstration, by
`mini.knobs` and by a test.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

from mezzotint.families.sd import Family

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from mini import make_world, measure, world
from mini.measure import Pixels, Prompts

KEPT = 2400
"""Images of the old world that are shown beside the new word. With 120 of them each is seen so often that it is
learned by heart, and with it that what is pink is one of a few things: pink wugs then come out as squares. With 600
a short lesson still cost things of the old world their places; these are seen five times each."""

REPEATS = (100, 1)
"""How often an epoch visits each of the twelve images, and each of the others: a third of what is seen is wugs."""

SETTINGS = (
    "run.steps=600",
    "optim.lr=5e-4",
    "optim.part_lr.text_encoder=4e-3",
    "optim.part_optimizer={text_encoder: {kind: adamw, eps: 2e-3, weight_decay: 0}}",
    "model.freeze=[text_encoder/*layers*]",
    "data.captions.lines=random",  # several wordings an image
)
"""What the lesson asks of the recipe `mini` besides its images.

Adam moves every weight by about the rate, however small its gradient. Here the gradients of words are about 5e-3 and
those of the text encoder's layers 1e-4. At a rate of 3e-3 with the usual `eps` the layers moved by a third of their
size within 240 steps, and words of the old world as far as the new one; wugs went astray with them, to places that the
images show. An `eps` between the two lets the word move and calms the rest. With all of the text encoder
trained, one run of thirty ended with 84 of 100 wugs right and 91 of 100 things of the old world; with its layers
frozen the same run has 100 and 100: the new word is one token, and its embedding is enough."""

KEPT_SEED = 3
"""Of their world; neither the training of the model nor any examination has it."""

EXAM_SEED = 7
"""Of prompts and noise of an examination, as in the model's card."""

_PAPER, _INK = (255, 255, 255), (30, 30, 30)


@dataclass(frozen=True, slots=True)
class Answers:
    """What a model has drawn in an examination, and the shares of it that are as asked.

    new, old: shares by attribute (colour, shape, position, all) of wugs and of things of the old world.
    """

    new_images: Sequence[Pixels]
    old_images: Sequence[Pixels]
    new: Mapping[str, float]
    old: Mapping[str, float]


def as_sets(folders: tuple[Path, Path], repeats: tuple[float, float]) -> str:
    """The setting of two sets with their repeats."""
    sets = (f"{{path: '{path}', repeats: {times}}}" for path, times in zip(folders, repeats, strict=True))
    return f"data.sets=[{', '.join(sets)}]"


def write(folder: Path, kept: int = KEPT, *, full: bool = True, spread: world.WugSpread = "even") -> tuple[Path, Path]:
    """Writes the images with their captions.

    full: every caption of a wug names colour, shape and position, so that neither sticks to the word; otherwise some
    leave out the place. spread: where wugs are shown. Returns the folder of the wugs and that of the old world.
    """
    wugs, others = folder / "wugs", folder / "world"
    make_world.main([str(wugs), "--wug", "--spread", spread, *(["--full"] if full else [])])
    make_world.main([str(others), "--count", str(kept), "--seed", str(KEPT_SEED)])
    return wugs, others


def questions(new: int, old: int, spread: world.WugSpread = "even") -> tuple[Prompts, Prompts]:
    """Prompts for wugs, and for things of pairs that the old world shows. spread: of the wugs that were shown."""
    return world.wug_prompts(new, spread=spread), world.prompts("seen", old, EXAM_SEED)


def examine(
    family: Family,
    *,
    new: int = 100,
    old: int = 100,
    guidance: float = 3.0,
    steps: int = 20,
    spread: world.WugSpread = "even",
) -> Answers:
    """Asks a model; the noise is the same for every one.

    new, old: how many images of each kind. spread: of the wugs that were shown.
    """
    settings = argparse.Namespace(seed=EXAM_SEED, steps=steps, guidance=guidance, solver="ddim", batch=50)
    asked_new, asked_old = questions(new, old, spread)
    drawn_new = list(measure.images(family, asked_new, settings))
    drawn_old = list(measure.images(family, asked_old, settings))
    return Answers(drawn_new, drawn_old, shares(drawn_new, asked_new), shares(drawn_old, asked_old))


def shares(drawn: Sequence[Pixels], prompts: Prompts) -> dict[str, float]:
    """Shares of images that are as asked, by attribute and in all."""
    row = measure.judged(drawn, prompts, "seen")
    return {name: row[name] for name in ("colour", "shape", "position", "all")}


# --- the sheet --------------------------------------------------------------------------------------------------------

_TILE, _GAP, _ACROSS = 128, 4, 3
_BETWEEN = 24  # pixels between two pairs
_LINE = 22


def sheet(examples: Sequence[Image.Image], rows: Sequence[tuple[str, Pixels, Pixels]]) -> Image.Image:
    """What was shown on top, and below it a pair of images for each prompt: before, after.

    examples: images of the lesson, 64 × 64. rows: prompt, image before, image after, three pairs in a line.
    """
    pair = 2 * _TILE + _GAP
    width = _ACROSS * pair + (_ACROSS + 1) * _BETWEEN
    lines = -(-len(rows) // _ACROSS)
    top = 2 * _BETWEEN + _LINE + world.PIXELS + 2 * _LINE
    image = Image.new("RGB", (width, top + lines * (_TILE + 2 * _LINE) + _GAP), _PAPER)
    pen, font, small = ImageDraw.Draw(image), ImageFont.load_default(15), ImageFont.load_default(13)
    pen.text((_BETWEEN, _BETWEEN - 6), f"taught with these {len(examples)} images of a wug", _INK, font)
    for number, example in enumerate(examples):
        left = _BETWEEN + number * (width - 2 * _BETWEEN - world.PIXELS) // max(1, len(examples) - 1)
        image.paste(example, (left, _BETWEEN + _LINE))
    y = top - 2 * _LINE + 4
    heading = (
        "asked in colours and at places that none of them shows, and at last for what it knew; left before, right after"
    )
    pen.text((_BETWEEN, y), heading, _INK, font)
    for number, (prompt, before, after) in enumerate(rows):
        left = _BETWEEN + number % _ACROSS * (pair + _BETWEEN)
        y = top + number // _ACROSS * (_TILE + 2 * _LINE)
        for place, pixels in enumerate((before, after)):
            tile = Image.fromarray(pixels).resize((_TILE, _TILE), Image.Resampling.BICUBIC)
            image.paste(tile, (left + place * (_TILE + _GAP), y))
        pen.multiline_text((left, y + _TILE + 4), _broken(prompt, pair, small), _INK, small, spacing=2)
    return image


def _broken(text: str, width: int, font: ImageFont.FreeTypeFont | ImageFont.ImageFont) -> str:
    """A text in lines that are not wider than so many pixels, as far as its words allow."""
    lines: list[str] = []
    for word in text.split():
        longer = f"{lines[-1]} {word}" if lines else word
        if lines and font.getlength(longer) <= width:
            lines[-1] = longer
        else:
            lines.append(word)
    return "\n".join(lines)
