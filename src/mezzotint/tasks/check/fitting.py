"""Settings with which a run fits into memory, those that change the least first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from mezzotint.errors import MezzotintError
from mezzotint.settings.counting import format_bytes
from mezzotint.settings.recipe import Recipe, replace_value
from mezzotint.settings.resolved import blocks_on_device
from mezzotint.settings.sections.run import GradientSums
from mezzotint.shapes import Size
from mezzotint.tasks.check.memory import Memory, MetaModel, memory_of, with_offload

SPARE = 1.05
"""Free bytes required for each counted byte."""
OFFLOAD = "run.offload.blocks"
_OF_PASSES = ("run.micro_batch", "run.gradient_checkpointing.enabled", "data.batch_size")
_BASES = ({"run.frozen_dtype": "int8"}, {"run.frozen_dtype": "nf4"})
"""Quantized base models of an adapter."""
_UPDATES = (
    {"optim.clip.scope": "tensor", "optim.in_backward": True},
    {"optim.clip.scope": "tensor", "optim.in_backward": True, "optim.optimizer": {"kind": "adafactor"}},
)
"""Updates that need less memory, for full fine-tuning with batches of one."""


@dataclass(frozen=True, slots=True)
class FittingSettings:
    """Settings with which a run fits, by path, and the memory it needs then."""

    settings: Mapping[str, Any]
    memory: Memory

    def __str__(self) -> str:
        overrides = " ".join(f"{path}={_format_value(value)}" for path, value in self.settings.items())
        host = f", and {format_bytes(self.memory.on_host)} of host memory" if self.memory.on_host else ""
        return f"{overrides or 'as it is'} ({format_bytes(self.memory.step)}{host})"


def ways_to_fit(
    recipe: Recipe,
    batches: Mapping[Size, int],
    room: int,
    *,
    device: str,
    processes: int = 1,
    most: int = 2,
    of_card: bool = False,
    sums: GradientSums | None = None,
) -> list[FittingSettings]:
    """Up to `most` ways in which a run fits into `room` bytes, those that change the least first; empty if nothing
    helps. batches: as in `memory_of`. device, sums: as in `MetaModel`. of_card: whether `room` is the memory of a
    graphics card, on whatever machine this is computed; host memory is then separate."""
    chosen: list[FittingSettings] = []
    counting = _MemoryCounter(recipe, batches, device, processes, sums)
    for settings in _candidates(recipe, offloads=of_card or device != "cpu"):
        memory = counting.of(settings)
        if memory is not None and SPARE * (memory.step if of_card else memory.peak) <= room:
            chosen.append(FittingSettings(settings, memory))
            if not settings or len(chosen) == most:
                break
    return chosen


@dataclass(slots=True)
class _MemoryCounter:
    """Counts the memory of a recipe with other settings; equal passes are counted once."""

    recipe: Recipe
    batches: Mapping[Size, int]
    device: str
    processes: int
    sums: GradientSums | None = None
    _passes: dict[tuple[str, ...], Memory] = field(default_factory=dict)
    _cached: dict[str, tuple[MetaModel, Memory] | None] = field(default_factory=dict)

    def of(self, settings: Mapping[str, Any]) -> Memory | None:
        """The memory with these settings; None for settings that are invalid with the recipe."""
        plain = {path: value for path, value in settings.items() if path != OFFLOAD}
        if str(plain) not in self._cached:
            self._cached[str(plain)] = self._count(plain)
        counted = self._cached[str(plain)]
        try:
            other = _with_settings(self.recipe, settings)
        except (MezzotintError, ValueError):
            return None
        if counted is None or OFFLOAD not in settings:
            return None if counted is None else counted[1]
        outline, memory = counted
        outline.blocks = blocks_on_device(other)
        return with_offload(outline, memory)

    def _count(self, settings: Mapping[str, Any]) -> tuple[MetaModel, Memory] | None:
        of_passes = tuple(path for path in settings if path in _OF_PASSES)
        passes = self._passes.get(of_passes)
        try:
            outline = MetaModel(_with_settings(self.recipe, settings), self.device, self.sums)
        except (MezzotintError, ValueError):
            return None
        sizes = dict.fromkeys(self.batches, 1) if "data.batch_size" in settings else self.batches
        memory = memory_of(outline, {} if passes else sizes, processes=self.processes)
        memory = memory if passes is None else replace(memory, activations=passes.activations)
        self._passes.setdefault(of_passes, memory)
        return outline, memory


def _with_settings(recipe: Recipe, settings: Mapping[str, Any]) -> Recipe:
    for path, value in settings.items():
        recipe = replace_value(recipe, path.split("."), value)
    return recipe


def _list_reductions(recipe: Recipe) -> dict[str, Any]:
    """Settings that make passes smaller and change no result, if the recipe does not have them."""
    has_one = recipe.data.largest_batch == 1 or recipe.run.micro_batch == 1
    of_step = {} if has_one else {"run.micro_batch": 1}
    return of_step | ({} if recipe.run.gradient_checkpointing.enabled else {"run.gradient_checkpointing.enabled": True})


def _candidates(recipe: Recipe, *, offloads: bool) -> Iterator[dict[str, Any]]:
    """Settings to try, each on top of the recipe."""
    run, small = recipe.run, _list_reductions(recipe)
    offloads = offloads and run.offload.blocks is None and run.runtime != "fsdp" and not run.compile
    auto = {OFFLOAD: "auto"}
    yield {}
    yield from [small] if small else []
    yield from [small | auto] if offloads else []
    if recipe.model.has_adapter:
        yield from (small | base for base in _BASES)
        yield from (small | base | auto for base in _BASES if offloads)
        return
    small = {path: value for path, value in small.items() if path != "run.micro_batch"}
    small |= {"data.batch_size": 1} if recipe.data.batch_size > 1 else {}
    small |= {"optim.accumulation": 1} if recipe.optim.accumulation > 1 else {}
    yield from (small | update for update in _UPDATES)
    yield from (small | update | auto for update in _UPDATES if offloads)


def choose_blocks(
    outline: MetaModel, batches: Mapping[Size, int], *, processes: int, free: int | None
) -> tuple[int | None, str]:
    """How many blocks of the denoiser are on the device at once if `run.offload.blocks` is auto, None for all of them;
    and a sentence about it. free: bytes of memory on the device, None if unknown."""
    if free is None:
        return 2, f"{OFFLOAD} is auto: 2, because the free memory is not known"
    outline.blocks = None
    memory = memory_of(outline, batches, processes=processes)
    if SPARE * memory.peak <= free:
        return None, f"{OFFLOAD} is auto: all blocks fit on the device"
    outline.blocks = 2
    count = at_once(with_offload(outline, memory), free)
    return count, f"{OFFLOAD} is auto: {count} of {len(memory.blocks)} blocks are on the device at once"


def at_once(memory: Memory, room: int) -> int:
    """How many blocks may be on the device at once, at least two. memory: counted with two."""
    extra_blocks = int((room / SPARE - memory.step) // max(memory.blocks))
    return max(2, min(len(memory.blocks), 2 + extra_blocks))


def _format_value(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {item}" for key, item in value.items()) + "}"
    return str(value).lower() if isinstance(value, bool) else str(value)
