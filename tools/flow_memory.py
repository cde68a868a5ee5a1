"""Writes the table of docs/guides/flow.md: what fits on a card of 24 GB and on one of 80 GB, and with which settings,
for models of the flow-matching families in a published size, as `mezzotint check` counts it from their configurations.

    python tools/flow_memory.py         # writes docs/guides/flow.md
    python tools/flow_memory.py flux    # prints one model
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from mezzotint.settings.reading.read import read  # noqa: E402
from mezzotint.settings.recipe import Recipe  # noqa: E402
from mezzotint.shapes import Size  # noqa: E402
from mezzotint.tasks.check import fitting  # noqa: E402
from support.flow_folders import full_size  # noqa: E402

PAGE = ROOT / "docs" / "guides" / "flow.md"
BEGIN, END = "<!-- begin memory: written by tools/flow_memory.py -->", "<!-- end memory -->"
MODELS = {
    "sd3": ("SD3.5 medium", "sd35-medium", "sd35-lora-24gb", (1024, 1024)),
    "flux": ("FLUX.1 dev", "flux-dev", "flux-lora-24gb", (1024, 1024)),
    "chroma": ("Chroma1", "chroma", "chroma-lora-24gb", (1024, 1024)),
    "flux2": ("FLUX.2 Klein 4B", "klein-4b", "klein-lora-24gb", (1024, 1024)),
    "flux2-dev": ("FLUX.2 dev", "flux2-dev", "flux2-dev-lora-24gb", (1024, 1024)),
    "qwen-image": ("Qwen-Image", "qwen-image", "qwen-image-lora-24gb", (1024, 1024)),
    "krea2": ("Krea 2", "krea2", "krea2-lora-24gb", (1024, 1024)),
    "z-image": ("Z-Image", "z-image", "z-image-lora-24gb", (1024, 1024)),
    "wan": ("Wan 2.1 1.3B, 49 frames", "wan-1.3b", "wan-lora-24gb", (832, 480, 49)),
    "ltx": ("LTX-Video 2B, 97 frames", "ltx-2b", "ltx-lora-24gb", (704, 512, 97)),
}
"""By name: the model, its configurations, the shipped recipe, the size of a sample."""
WHOLE = ["model.adapter.kind=none", "run.frozen_dtype=same", "optim.lr=1e-5"]
ROOMS = {"adapter": 24, "whole": 80}
"""Gigabytes of the card."""


def rows(names: tuple[str, ...]) -> Iterator[str]:
    """A line of the table for each model."""
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            title, model, recipe, size = MODELS[name]
            place = full_size(model, Path(folder) / name)
            words = ["model.weights=random", f"model.path={place}"]
            cells = [
                cell(read(recipe, [*words, *more]).recipe, Size(*size), kind)
                for kind, more in (("adapter", ["run.frozen_dtype=same"]), ("whole", WHOLE))
            ]
            yield f"| {title} | {' | '.join(cells)} |"


def cell(recipe: Recipe, size: Size, kind: str) -> str:
    """The ways in which a run fits, those that change least first."""
    fitting_ways = fitting.ways_to_fit(
        recipe, {size: recipe.data.batch_size}, int(ROOMS[kind] * 1e9), device="cpu", most=2, of_card=True
    )
    if not fitting_ways:
        return "not on one card"
    return "; or ".join(f"{_settings(way)}{way.memory.step / 1e9:.1f} GB{_host(way)}" for way in fitting_ways)


def _settings(way: fitting.FittingSettings) -> str:
    words = [f"{path}={_plain(value)}" for path, value in way.settings.items()]
    return f"`{' '.join(words)}`: " if words else ""


def _plain(value: object) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {one}" for key, one in value.items()) + "}"
    return str(value).lower()


def _host(way: fitting.FittingSettings) -> str:
    return f" (and {way.memory.on_host / 1e9:.0f} GB of host memory)" if way.memory.on_host else ""


def main(names: list[str]) -> None:
    """Prints some families, or writes the page with all of them."""
    if names:
        print("\n".join(rows(tuple(names))), flush=True)
        return
    head = ["| model | adapter of rank 16, 24 GB | full fine-tuning, AdamW unless noted, 80 GB |", "|---|---|---|"]
    table = [*head, *rows(tuple(MODELS))]
    text = PAGE.read_text("utf-8")
    before, rest = text.split(BEGIN)
    PAGE.write_text(f"{before}{BEGIN}\n{chr(10).join(table)}\n{END}{rest.split(END)[1]}", "utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
