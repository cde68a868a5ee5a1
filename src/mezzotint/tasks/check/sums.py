"""In which type a run sums its gradients, where the recipe leaves that open: settled when the run starts, by memory."""

from __future__ import annotations

from mezzotint.recipe.base import with_values
from mezzotint.recipe.recipe import Recipe
from mezzotint.tasks.assemble import Dataset
from mezzotint.tasks.check.estimates import bucket_rows
from mezzotint.tasks.check.memory import Outline, memory_of

PATH = "run.gradient_sums"
SPARE = 1.05
"""What has to be free for a byte that is counted."""


def is_open(recipe: Recipe) -> bool:
    """Whether there is something to settle: float32 weights have float32 sums, and so does `run.runtime=fsdp`."""
    run = recipe.run
    is_small = run.precision != "fp32" and run.weight_dtype != "fp32"
    return run.gradient_sums == "auto" and is_small and run.runtime != "fsdp"


def settled(recipe: Recipe, dataset: Dataset, device: str, *, processes: int, free: int | None) -> tuple[Recipe, str]:
    """A recipe that leaves it open with that settled, and a sentence that says so. device: as of `Outline`. free: bytes
    of memory on it, None where nobody tells."""
    in_float32 = with_values(recipe, {PATH: "fp32"})
    batches = {row.bucket: row.largest for row in bucket_rows(dataset, recipe) if row.batches}
    peak = memory_of(Outline(in_float32, device), batches, processes=processes).peak
    if free is not None and SPARE * peak <= free:
        return in_float32, f"{PATH} is auto: gradients are summed in float32, for which there is room; the run keeps it"
    why = "float32 has no room" if free is not None else "how much memory is free is not known"
    kept = f"{PATH} is auto: gradients are summed in {recipe.run.precision}, {why}; the run keeps it"
    return with_values(recipe, {PATH: "same"}), kept


def recorded(recipe: Recipe) -> dict[str, str]:
    """For the history; nothing where it makes no difference."""
    return {} if recipe.run.gradient_sums == "auto" else {PATH: recipe.run.gradient_sums}
