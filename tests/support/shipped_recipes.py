"""Tiny models under the names in the shipped recipes, so that these can be run."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from mezzotint.settings.reading.read import read, shipped_recipes
from mezzotint.shapes import Size
from mezzotint.tasks.check.memory import Memory, memory_of
from mezzotint.tasks.check.meta_model import MetaModel

TINY = ("model.weights=random", "run.precision=fp32", "run.device=cpu", "data.cache.path=cache")
SDXL = (*TINY, "model.path=tiny-sdxl", "data.path=shapes")
SMALL = ("data.resolution=64", "data.buckets.step=16")
WORDS = {
    "sdxl": (*SDXL, *SMALL), "sdxl-cached": (*SDXL, *SMALL), "sdxl-24gb": (*SDXL, *SMALL),
    "sdxl-lora": (*SDXL, *SMALL), "sdxl-lora-8gb": (*SDXL, *SMALL),
    "sdxl-multi-aspect": (*SDXL, "data.buckets.sizes=[[64, 64], [48, 80]]"),
}  # fmt: skip


STRAIGHT = {
    "sd35-lora-24gb": ("tiny-sd3", "sd35-medium"), "flux-lora-24gb": ("tiny-flux", "flux-dev"),
    "chroma-lora-24gb": ("tiny-chroma", "chroma"), "klein-lora-24gb": ("tiny-flux2", "klein-4b"),
    "qwen-image-lora-24gb": ("tiny-qwen-image", "qwen-image"), "z-image-lora-24gb": ("tiny-z-image", "z-image"),
    "krea2-lora-24gb": ("tiny-krea2", "krea2"),
    "wan-lora-24gb": ("tiny-wan", "wan-1.3b"), "ltx-lora-24gb": ("tiny-ltx", "ltx-2b"),
    "flux2-dev-lora-24gb": ("tiny-flux2", "flux2-dev"), "z-image-turbo-lora-24gb": ("tiny-z-image", "z-image"),
}  # fmt: skip
WHOLE = {
    "sd35-80gb": "sd35-lora-24gb", "flux-80gb": "flux-lora-24gb", "chroma-80gb": "chroma-lora-24gb",
    "klein-80gb": "klein-lora-24gb", "qwen-image-80gb": "qwen-image-lora-24gb", "z-image-80gb": "z-image-lora-24gb",
    "krea2-80gb": "krea2-lora-24gb", "wan-80gb": "wan-lora-24gb", "ltx-80gb": "ltx-lora-24gb",
}  # fmt: skip
"""Recipes of whole models, with that of an adapter of the same."""
STRAIGHT |= {name: STRAIGHT[adapter] for name, adapter in WHOLE.items()}
"""Recipes of models on straight paths, with their tiny model, and the published one's configurations."""
FILMS = ("data.path=films", "data.clips.frames=9", "data.clips.buckets=[[9, 32, 32]]", "data.clips.fps=null")
WORDS |= {
    name: (*TINY, f"model.path={tiny}", *(FILMS if tiny in ("tiny-wan", "tiny-ltx") else ("data.path=shapes", *SMALL)))
    for name, (tiny, _) in STRAIGHT.items()
}


def write_films(folder: Path, write_clip: Callable[..., Path]) -> None:
    """Four clips with captions."""
    for number in range(4):
        write_clip(folder / f"{number}.mp4", 10, size=(48, 32))
        (folder / f"{number}.txt").write_text(f"a ball, number {number}")


def predicted(name: str, size: tuple[int, ...], *words: str) -> Memory:
    """What a step of a recipe takes, which is what stands at its head."""
    recipe = read(name, ["model.weights=random", *words]).recipe
    memory = memory_of(MetaModel(recipe), {Size(*size): recipe.data.batch_size})
    at_head = re.search(r"`mezzotint check` predicts it: ([\d.]+) GB", shipped_recipes()[name].read_text("utf-8"))
    assert at_head is not None
    # on a card, where weights arrive in their type; read in float32 they lie in the host's memory
    assert memory.step / 1e9 == pytest.approx(float(at_head[1]), abs=0.1)
    in_gib = re.search(r"([\d.]+) GiB, which leaves", shipped_recipes()[name].read_text("utf-8"))
    assert in_gib is None or memory.peak / 2**30 == pytest.approx(float(in_gib[1]), abs=0.1)
    return memory
