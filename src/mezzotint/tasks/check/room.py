"""Checks before a run's model is loaded: whether disk and memory suffice, and whether its smallest images can be
computed in its precision; and the type of gradient sums, if the recipe leaves it to the available memory."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import nn

from mezzotint import durable
from mezzotint.data.buckets import buckets
from mezzotint.errors import OutOfMemory, RecipeError, StorageError
from mezzotint.run_folder import RunFolder
from mezzotint.runtimes.base import Runtime
from mezzotint.settings.advice import suggest_less_memory
from mezzotint.settings.recipe import Recipe
from mezzotint.settings.resolved import SUMS, Resolved
from mezzotint.settings.sections.run import GradientSums
from mezzotint.shapes import Size, latent_size
from mezzotint.tasks.assemble import Dataset
from mezzotint.tasks.check.memory import memory_of
from mezzotint.tasks.check.meta_model import MetaModel
from mezzotint.tasks.holding import free_device_memory, trains_offloaded
from mezzotint.training.checkpoints import state
from mezzotint.training.precision.policy import DTYPES
from mezzotint.weights.model_files import ModelFiles

_SPARE = 1.05
"""Free bytes required for each counted byte."""
_MOST_OF_A_NUMBER = 40
"""The most bytes that a trained weight takes on disk: two checkpoints of weights, EMA and two moments, and two
exports."""


def require_disk_space(resolved: Resolved, files: ModelFiles, folder: RunFolder, runtime: Runtime) -> None:
    """Raises StorageError E1710 if two checkpoints and the exports at the end do not fit on the disk of the run folder,
    OutOfMemory E1751 if weights, moments and EMA alone exceed the free memory. Nothing is counted if there is plenty of
    both."""
    recipe = resolved.recipe
    moved = [part for part in files.spec.trainable if part in recipe.model.train and part in files.parts]
    numbers = sum(math.prod(shape) for part in moved for shape in files.shapes(part).values())
    others = 0 if recipe.run.export.parts == "trained" else 16 * numbers  # more than the other parts ever need
    disk, device = durable.free_bytes(folder.path), runtime.device
    if trains_offloaded(recipe, resolved.blocks_on_device):  # masters, moments and EMA are on the host
        device = torch.device("cpu")
    memory = free_device_memory(device, recipe.run.memory_limit)
    if disk > _MOST_OF_A_NUMBER * numbers + others and (memory is None or memory > _MOST_OF_A_NUMBER * numbers):
        return
    outline = MetaModel(recipe, runtime.device.type, resolved.gradient_sums)
    checkpoint = outline.update.checkpoint_bytes()
    export = _export_bytes(recipe, outline)
    existing = len(state.list_checkpoints(folder.checkpoints))
    needed = max(1, 2 - existing) * checkpoint + export
    if needed > disk:
        raise StorageError(
            f"{folder.path}: two checkpoints and the model at the end need {needed:,} bytes and {disk:,} are free; "
            "free disk space, set run.folder to another disk, or train less of the model (model.train, model.adapter)",
            code="E1710",
        )
    ema = sum(t.nbytes for name, t in outline.update.tensors().items() if name.startswith("ema/"))
    held = checkpoint - (ema if recipe.optim.ema.device == "cpu" and runtime.device.type != "cpu" else 0)
    held //= runtime.world_size if runtime.shares or recipe.run.runtime == "fsdp" else 1
    if memory is not None and held > memory:
        raise OutOfMemory(
            f"{device} has {memory:,} bytes free, but weights, moments and EMA already take {held:,}; "
            f"{suggest_less_memory(recipe)}",
            code="E1751",
        )


def _export_bytes(recipe: Recipe, outline: MetaModel) -> int:
    """Bytes of the exports at the end."""
    export = recipe.run.export
    parts = outline.family.parts().values()
    whole = sum(p.numel() for part in parts for p in part.parameters())
    trained = sum(p.numel() for p in outline.trained.values())
    is_part = export.parts == "trained" or recipe.model.has_adapter
    size = (trained if is_part else whole) * DTYPES[export.dtype].itemsize
    return size * (1 if recipe.optim.ema.rule == "none" else 2)


def refuse_too_small(recipe: Recipe, dataset: Dataset, denoiser: nn.Module, pixels: int, device: str) -> None:
    """Raises RecipeError E1519 for images that are one latent wide before the network's last down-sampling, in bf16 on
    a CPU: torch's convolution returns wrong values there. pixels: of a latent's side."""
    if device != "cpu" or recipe.run.precision != "bf16":
        return
    halvings = sum(type(module).__name__ == "Downsample2D" for module in denoiser.modules())
    table = buckets.table(recipe.data)
    for number in sorted(set(dataset.timeline.columns.bucket.tolist())):
        size = latent_size(table[number], pixels)
        side = min(size.width, size.height)
        if halvings and -(-side // 2 ** (halvings - 1)) < 2:
            least = pixels * (2 ** (halvings - 1) + 1)
            raise RecipeError(
                f"images of {table[number]} are one latent wide at the network's lowest resolution, where torch "
                f"{torch.__version__} computes wrong values in bf16 on a CPU; set run.precision=fp32, or use "
                f"buckets whose sides are at least {least}",
                code="E1519",
            )


def choose_gradient_sums(
    recipe: Recipe, batches: Mapping[Size, int], device: str, *, processes: int, free: int | None
) -> tuple[GradientSums, str]:
    """The type of gradient sums of a recipe that leaves it open, and a sentence about it. batches: as in `memory_of`.
    device: as in `MetaModel`. free: bytes of memory on it, None if unknown."""
    peak = memory_of(MetaModel(recipe, device, "fp32"), batches, processes=processes).peak
    if free is not None and _SPARE * peak <= free:
        return "fp32", f"{SUMS} is auto: gradients are summed in float32, which fits into memory; the run keeps it"
    reason = "float32 does not fit" if free is not None else "the free memory is not known"
    return "same", f"{SUMS} is auto: gradients are summed in {recipe.run.precision}, {reason}; the run keeps it"
