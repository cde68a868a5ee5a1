"""Tables inside guides: the values of the recipes that ship, and the names of settings in other trainers. Written by
`write_docs.py`."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

from mezzotint.settings.reading.foreign_names import foreign_names
from mezzotint.settings.reading.read import read, shipped_recipes
from mezzotint.settings.recipe import Recipe

_MEMORY = re.compile(r"Memory of a step as `mezzotint check` predicts it: ([\d.]+ GB)")
_TRAINERS = ("kohya", "OneTrainer", "diffusers")


def recipe_values() -> list[str]:
    """A row for each recipe with a memory figure, LoRAs first, by memory."""
    rows: list[tuple[bool, float, str]] = []
    for name, path in shipped_recipes().items():
        memory = _MEMORY.search(Path(path).read_text("utf-8"))
        if memory:
            recipe = read(name, []).recipe
            rows.append((not recipe.model.has_adapter, float(memory[1].split()[0]), _row(name, recipe, memory[1])))
    head = [
        "| recipe | `model.path` | steps | learning rate | rank | images in a step | pixels | memory |",
        "|---|---|---:|---:|---:|---:|---:|---:|",
    ]
    return [*head, *(row for _, _, row in sorted(rows))]


def _row(name: str, recipe: Recipe, memory: str) -> str:
    rank = str(recipe.model.adapter.rank) if recipe.model.has_adapter else "all weights"
    steps = f"{recipe.run.steps:,}" if recipe.run.steps else f"{recipe.run.epochs:g} epochs"
    per_step = recipe.data.batch_size * recipe.optim.accumulation
    sizes = " and ".join(map(str, recipe.data.resolution))
    rate = f"{recipe.optim.lr:.0e}".replace("e-0", "e-")
    cells = (f"`{name}`", f"`{recipe.model.path}`", steps, rate, rank, str(per_step), sizes, memory)
    return f"| {' | '.join(cells)} |"


def setting_terms() -> list[str]:
    """A row for each setting that at least two of the trainers have a name for, in the order of the recipe."""
    names: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for name, foreign in foreign_names().items():
        for trainer in foreign.origins:
            if foreign.path:
                names[foreign.path][trainer].append(f"`{name}`")
    head = ["| Mezzotint | kohya | OneTrainer | diffusers |", "|---|---|---|---|"]
    rows = [
        f"| `{path}` | {' | '.join(', '.join(of[trainer]) for trainer in _TRAINERS)} |"
        for path, of in names.items()
        if sum(trainer in of for trainer in _TRAINERS) > 1
    ]
    return [*head, *rows]
