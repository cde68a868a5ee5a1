"""The model card of mezzotint-mini, written from its measured figures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_KINDS = {
    "seen": "one thing, pairs of shape and colour that the training showed",
    "held_out": "one thing, pairs that the training never showed",
    "relations": "two things, one left of, right of, above or below the other; colour and shape of both",
    "counts": "two or three things alike; colour and shape of all",
}


def card(figures: Mapping[str, Any], parameters: Mapping[str, int]) -> str:
    """The README.md of the model's folder. figures: what `mini.measure` has written. parameters: by component."""
    return _HEAD + _parameters(parameters) + _WORLD + _figures(figures) + _TAIL


def _parameters(parameters: Mapping[str, int]) -> str:
    names = {"unet": "UNet", "text_encoder": "text encoder", "vae": "VAE"}
    counts = ", ".join(f"{names[component]} {count / 1e6:.2f} M" for component, count in parameters.items())
    return f"Parameters: {counts}; in half precision {sum(parameters.values()) * 2 / 1e6:.1f} MB.\n\n"


def _figures(figures: Mapping[str, Any]) -> str:
    settings = figures["settings"]
    lines = [
        "## Figures\n",
        f"Drawn with {settings['solver']}, {settings['steps']} steps, guidance {settings['guidance']:g}, "
        f"seed {settings['seed']}, and read off the pixels by the recognisers\nof `tools/mini/recognise.py`: the share "
        "of pictures in which what is named is as asked.\n",
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
    lines.append(_row("one thing", "blind choice", figures["chance"]))
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

A text-to-image model of a few megabytes that draws on a CPU in about a second. It has the structure of Stable
Diffusion 1 (a VAE of factor 8 with four latent channels, a CLIP text encoder, a UNet with cross-attention), predicts
the velocity, and draws pictures of 64 × 64 pixels. It was trained from nothing with Mezzotint, and ships so that
everything in Mezzotint can be tried without a download and without a GPU.

"""

_WORLD = """## What it knows

In short: coloured shapes in their places, on plain backgrounds.

A drawn world of shapes, colours, sizes, positions, backgrounds, relations of two things, and two or three things alike;
`tools/mini/world.py` draws it and says it. Captions are short and in lower case: `a red circle in the top left`, `a
small green star on the right, black background`, `two pink rings`. The pictures are made by that file alone, so that no
one else has rights in them. Five of the 48 pairs of shape and colour were left out of the training; they are the
held-out prompts below.

"""

_TAIL = """## How it was made

Text encoder and UNet together by the recipe `mini-from-scratch`, 11 000 steps of 64 pictures from random weights in 48
minutes on one CPU core; recipe, environment, history and curve of that run are kept in
`tools/mini/record_of_the_run/`. The VAE by `tools/mini/train_vae.py`, 12 000 steps in two courses: between them the
things of the world were made larger, the edges' part of the loss was doubled and the pictures from outside the world
became fewer. The script has the settings of the second course, in one go. It was also run so, from nothing to its end:
16 000 steps in 38 minutes of one shared core gave a VAE that passes the gate, with 100 % of colours, 99.7 % of shapes
and 100 % of positions read rightly from its reconstructions of 1000 pictures (this one: 100 %, 99.6 %, 100 %). It does
not ship, since the UNet was trained on this one; its curve and its check lie beside the record.

`tools/mini/make_model.py` wrote this folder. The weights are the moving average of the training, rounded to half
precision.

## How to draw

`mezzotint sample mezzotint-mini --prompt="a red circle in the top left" sample.guidance=3`, or diffusers'
`StableDiffusionPipeline.from_pretrained` on this folder, with 20 steps and a guidance scale of 3. On a CPU it computes
in float32, although its files are half as large.

## Limits

It knows nothing but this world: no photographs, no faces, no words beyond the captions' few dozen. Other words are
spelled in pieces whose embeddings were never trained; a fine-tune on pictures with such words trains them. At 64 × 64
pixels there is no detail to expect. It is made to learn with, not to draw with.

## Licence

Apache-2.0, weights and data alike.
"""
