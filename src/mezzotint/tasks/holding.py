"""How the weights of a run's parts are kept: in which type, on which device, and whether all at once."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from dataclasses import replace

import torch

from mezzotint.errors import RecipeError, WeightsError
from mezzotint.families.base import ModelFamily
from mezzotint.runtimes.base import Runtime, bytes_of, free_memory
from mezzotint.runtimes.shared.offload import Offload
from mezzotint.settings.counting import format_bytes
from mezzotint.settings.recipe import Recipe
from mezzotint.training.precision import attention
from mezzotint.training.precision.policy import Precision, cast
from mezzotint.weights.layer_streaming import TOGETHER, LayerStreamer
from mezzotint.weights.low_bit import FLOAT32, WeightForm
from mezzotint.weights.model_files import ModelFiles

_SPARE = 1.2
"""Free bytes required for each byte of an encoder, which also needs memory to compute."""
_BATCH_BETWEEN_LAYERS = 96 << 20
"""Bytes of a batch of captions between layers: hidden states of the largest encoders, and the three layers' states that
FLUX.2 uses."""
_LAYERS_AT_ONCE = 1 << 30
"""Bytes of an encoder's layers that are loaded at once."""


def resolve_read_forms(
    recipe: Recipe, needed: Collection[str], device: torch.device, blocks: int | None = None
) -> dict[str, WeightForm]:
    """How stored weights of the needed parts are read: each in its final type, onto its final device. Parts that are
    processed before a run, sharded over processes, or kept on the host are read onto the CPU. blocks: on the device at
    once, as in `Resolved`."""
    precision, model = Precision.of(recipe.run), recipe.model
    forms = dict.fromkeys(needed, precision.form_of_trained) | forms_of_frozen(recipe, needed)
    shared: Collection[str] = ("denoiser",) if blocks is not None else ()
    if trains_offloaded(recipe, blocks) or (recipe.run.runtime == "fsdp" and not model.has_adapter):
        shared = model.train
    if "denoiser" in shared and recipe.run.runtime == "fsdp" and model.weights == "files":
        forms["denoiser"] = replace(forms["denoiser"], is_deferred=True)
    if model.tokens.has_any or (model.has_adapter and model.adapter.init == "pissa"):
        return {part: FLOAT32 if part in model.train else form for part, form in forms.items()}
    return {part: form if part in shared else replace(form, device=device) for part, form in forms.items()}


def offload_of(recipe: Recipe, runtime: Runtime, blocks: int | None) -> Offload | None:
    """The `Offload` that keeps the denoiser's blocks on the host. blocks: on the device at once, None for all of them.
    Raises RecipeError E1752 for several processes without an adapter."""
    if blocks is None:
        return None
    refuse_offload(recipe, runtime.world_size, blocks)
    return Offload(runtime.device, blocks)


def refuse_offload(recipe: Recipe, processes: int, blocks: int | None) -> None:
    """Raises RecipeError E1752 for several processes with trained blocks on the host."""
    if processes > 1 and trains_offloaded(recipe, blocks):
        raise RecipeError(
            "run.offload.blocks without an adapter keeps gradients and the update in host memory of one process, "
            f"and {processes} processes were started; start one process, train an adapter, or leave run.offload.blocks "
            "out and write run.runtime=fsdp",
            code="E1752",
        )


def trains_offloaded(recipe: Recipe, blocks: int | None) -> bool:
    """Whether the blocks on the host are trained. blocks: on the device at once, None without offload."""
    return blocks is not None and not recipe.model.has_adapter and "denoiser" in recipe.model.train


def forms_of_frozen(recipe: Recipe, parts: Collection[str]) -> dict[str, WeightForm]:
    """How the weights of frozen parts are kept. Others are read in float32, as are those that `pissa` computes singular
    vectors of."""
    model, precision = recipe.model, Precision.of(recipe.run)
    moving = () if model.has_adapter and model.adapter.init != "pissa" else model.train
    return {part: precision.form_of(part) for part in parts if part not in moving}


def freeze(
    family: ModelFamily, recipe: Recipe, precision: Precision, device: torch.device, *, as_trained: Collection[str] = ()
) -> None:
    """Makes a model ready to encode or to generate, not to train: parts frozen, on the device, in the types of frozen
    parts. as_trained: parts that are kept in the type of trained weights."""
    for part, module in family.parts().items():
        module.requires_grad_(False).eval()
        if part in as_trained:
            cast(module, precision.weights)
        else:
            cast(module, precision.of_frozen(part), exclude=precision.fp32_tensors(module))
        module.to(device)
    arrange_denoisers(family, recipe, precision)


def arrange_denoisers(family: ModelFamily, recipe: Recipe, precision: Precision) -> None:
    """Sets up the denoisers' attention, and their modules that compute in float32."""
    for denoiser in family.denoisers:
        attention.set_up(denoiser, recipe.model.attention)
        precision.keep_modules_in_fp32(denoiser)


def free_device_memory(device: torch.device, cap: str | None) -> int | None:
    """Free bytes of memory; for a GPU at most `run.memory_limit`."""
    if device.type == "cuda":
        free = torch.cuda.mem_get_info(device)[0]
        return free if cap is None else min(free, bytes_of(cap))
    return free_memory()


def streamed_encoders(recipe: Recipe, files: ModelFiles, device: torch.device) -> LayerStreamer | None:
    """Streams a model's text encoders layer by layer, if the recipe sets it or they exceed the free memory; None if
    they are loaded completely."""
    mode, free = recipe.data.cache.encoders, free_device_memory(device, recipe.run.memory_limit)
    if mode == "whole" or files.settings.weights == "random":
        return None
    if mode == "auto" and (free is None or _SPARE * bytes_of_encoders(recipe, files) <= free):
        return None
    if free is None:
        return LayerStreamer(_LAYERS_AT_ONCE)
    return LayerStreamer(min(_LAYERS_AT_ONCE, free // 8), max(1, min(TOGETHER, free // 4 // _BATCH_BETWEEN_LAYERS)))


def bytes_of_encoders(recipe: Recipe, files: ModelFiles) -> int:
    """Bytes of a model's text encoders while encoding; quantized matrices are counted as the others."""
    try:
        shapes = [files.shapes(part) for part in files.spec.text_parts if part in files.parts]
    except WeightsError:  # missing files are reported where they are needed
        return 0
    numbers = sum(math.prod(shape) for part in shapes for shape in part.values())
    return numbers * Precision.of(recipe.run).frozen.itemsize


def notes(recipe: Recipe, files: ModelFiles, device: torch.device, on_host: int) -> Iterator[str]:
    """Notes about host memory. on_host: bytes of it that `run.offload` takes."""
    if recipe.data.cache.text and streamed_encoders(recipe, files, device) is not None:
        encoders = format_bytes(bytes_of_encoders(recipe, files))
        yield f"to fill the cache, text encoders of {encoders} are read layer by layer, about a gigabyte at a time"
    free = free_memory()
    if free is not None and on_host > free:
        yield (
            f"run.offload.blocks takes {format_bytes(on_host)} of host memory, and {format_bytes(free)} are free: "
            "the run will not start on this machine"
        )


def refuse_in_backward(recipe: Recipe, processes: int) -> None:
    """Raises RecipeError E1830 for `optim.in_backward` with several processes, whose gradients are summed."""
    if recipe.optim.in_backward and processes > 1:
        raise RecipeError(
            f"optim.in_backward frees each gradient at once, but {processes} processes sum them; start one "
            "process, or leave it out",
            code="E1830",
        )


def refuse_sharded(runtime: Runtime) -> None:
    """Raises RecipeError E1670 for training without masters in a runtime that keeps them."""
    if runtime.holds_masters:
        raise RecipeError(
            "run.weight_dtype is pure, but run.runtime=fsdp keeps float32 masters; write "
            "run.weight_dtype=same, or run.runtime=ddp",
            code="E1670",
        )
