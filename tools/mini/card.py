"""The model card of mezzotint-mini, written from its measured figures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_KINDS = {
    "seen": "one object, pairs of shape and colour that are in the training data",
    "held_out": "one object, pairs that are not in the training data",
    "relations": "two objects, one left of, right of, above or below the other; colour and shape of both",
    "counts": "two or three equal objects; colour and shape of all",
}


def card(figures: Mapping[str, Any], parameters: Mapping[str, int]) -> str:
    """The README.md of the model's folder. figures: as written by `mini.measure`. parameters: by component."""
    return _HEAD + _parameters(parameters) + _WORLD + _figures(figures) + _TAIL


def _parameters(parameters: Mapping[str, int]) -> str:
    names = {"unet": "UNet", "text_encoder": "text encoder", "vae": "VAE"}
    counts = ", ".join(f"{names[component]} {count / 1e6:.2f} M" for component, count in parameters.items())
    return f"Parameters: {counts}; in half precision {sum(parameters.values()) * 2 / 1e6:.1f} MB.\n\n"


def _figures(figures: Mapping[str, Any]) -> str:
    settings = figures["settings"]
    lines = [
        "## Figures\n",
        f"Generated with {settings['solver']}, {settings['steps']} steps, guidance {settings['guidance']:g}, "
        f"seed {settings['seed']}, and measured on the pixels by the recognisers\nof `tools/mini/recognise.py`: the "
        "share of images that match the prompt in this property.\n",
        *(f"- {kind.replace('_', ' ')}: {meaning}" for kind, meaning in _KINDS.items()),
        "",
        "| prompts | weights | colour | shape | position | relation | count | all |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for kind in _KINDS:
        for name, by_kind in figures["models"].items():
            if kind in by_kind:
                row = by_kind[kind]
                lines.append(_row(f"{row['prompts']} {kind.replace('_', ' ')}", name, row))
    lines.append(_row("one object", "random choice", figures["chance"]))
    return "\n".join(lines) + "\n\n"


def _row(prompts: str, name: str, shares: Mapping[str, float | None]) -> str:
    cells = (_percent(shares.get(key)) for key in ("colour", "shape", "position", "relation", "count", "all"))
    return " | ".join((f"| {prompts}", name, *cells)) + " |"


def _percent(share: float | None) -> str:
    return "" if share is None else f"{100 * share:.1f} %"


_HEAD = """---
license: apache-2.0
library_name: diffusers
pipeline_tag: text-to-image
---

# mezzotint-mini

A text-to-image model of a few megabytes that generates an image on a CPU in about a second. It has the structure of
Stable Diffusion 1 (a VAE of factor 8 with four latent channels, a CLIP text encoder, a UNet with cross-attention),
predicts the velocity, and generates images of 64 × 64 pixels. It was trained from scratch with Mezzotint, and ships
with it so that everything can be tried without a download and without a GPU.

"""

_WORLD = """## What it knows

In short: coloured shapes at given positions, on plain backgrounds.

A synthetic world of shapes, colours, sizes, positions, backgrounds, relations of two objects, and two or three equal
objects; `tools/mini/world.py` renders the images and writes the captions. Captions are short and in lower case: `a red
circle in the top left`, `a small green star on the right, black background`, `two pink rings`. All images are rendered
by that file, so nobody else has rights in them. Five of the 48 pairs of shape and colour were left out of the training;
they are the held-out prompts below.

"""

_TAIL = """## Training

Text encoder and UNet were trained together by the recipe `mini-from-scratch`, 11 000 steps of 64 images from random
weights in 48 minutes on one CPU core; recipe, environment, history and curve of that run are in
`tools/mini/record_of_the_run/`. The VAE was trained by `tools/mini/train_vae.py`, 12 000 steps in two phases: between
them the objects became larger, the weight of edges in the loss was doubled, and the share of images from outside the
world was reduced. The script has the settings of the second phase, in one run. That run was also done from scratch to
its end: 16 000 steps in 38 minutes of one shared core gave a VAE that passes the check, with 100 % of colours, 99.7 %
of shapes and 100 % of positions recognised in its reconstructions of 1000 images (this one: 100 %, 99.6 %, 100 %). It
is not shipped, because the UNet was trained on this one; its curve and its check are next to the record.

`tools/mini/make_model.py` wrote this folder. The weights are the moving average of the training, rounded to half
precision.

## Usage

`mezzotint sample mezzotint-mini --prompt="a red circle in the top left" sample.guidance=3`, or diffusers'
`StableDiffusionPipeline.from_pretrained` on this folder, with 20 steps and a guidance scale of 3. On a CPU it computes
in float32, although its files are in half precision.

## Limits

It knows only this world: no photographs, no faces, no words beyond the captions' few dozen. Other words are split into
tokens whose embeddings were never trained; fine-tuning on images with such words trains them. At 64 × 64 pixels there
is no detail. It is a model for learning and testing, not for generating images.

## Licence

Apache-2.0, weights and data alike.
"""
