"""What makes a run fit into memory: settings in an order in which those that change least come first, each counted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from mezzotint.errors import MezzotintError
from mezzotint.settings.counting import size
from mezzotint.settings.recipe import Recipe, replaced
from mezzotint.settings.resolved import blocks_on_device
from mezzotint.settings.sections.run import GradientSums
from mezzotint.shapes import Size
from mezzotint.tasks.check.memory import Memory, MetaModel, memory_of, with_offload

SPARE = 1.05
"""What has to be free for a byte that is counted."""
OFFLOAD = "run.offload.blocks"
_OF_PASSES = ("run.micro_batch", "run.gradient_checkpointing.enabled", "data.batch_size")
_BASES = ({"run.frozen_dtype": "int8"}, {"run.frozen_dtype": "nf4"})
"""Smaller forms of an adapter's model."""
_UPDATES = (
    {"optim.clip.scope": "tensor", "optim.in_backward": True},
    {"optim.clip.scope": "tensor", "optim.in_backward": True, "optim.optimizer": {"kind": "adafactor"}},
)
"""Smaller updates of a whole model, of batches of one."""


@dataclass(frozen=True, slots=True)
class Way:
    """Settings under which a run fits, by path, and what it takes then."""

    settings: Mapping[str, Any]
    memory: Memory

    def __str__(self) -> str:
        words = " ".join(f"{path}={_plain(value)}" for path, value in self.settings.items())
        host = f", and {size(self.memory.on_host)} of the host's" if self.memory.on_host else ""
        return f"{words or 'as it is'} ({size(self.memory.step)}{host})"


def ways(
    recipe: Recipe,
    batches: Mapping[Size, int],
    room: int,
    *,
    device: str,
    processes: int = 1,
    most: int = 2,
    of_card: bool = False,
    sums: GradientSums | None = None,
) -> list[Way]:
    """Up to so many ways in which a run fits into a room of bytes, those that change least first; none where nothing
    helps. batches: as of `memory_of`. device, sums: as of `MetaModel`. of_card: whether the room is a card's, wherever
    this is counted; the host's memory is another one then."""
    chosen: list[Way] = []
    counting = _Counting(recipe, batches, device, processes, sums)
    for settings in _tries(recipe, offloads=of_card or device != "cpu"):
        memory = counting.of(settings)
        if memory is not None and SPARE * (memory.step if of_card else memory.peak) <= room:
            chosen.append(Way(settings, memory))
            if not settings or len(chosen) == most:
                break
    return chosen


@dataclass(slots=True)
class _Counting:
    """Counts a recipe under other settings; passes that are alike are made once."""

    recipe: Recipe
    batches: Mapping[Size, int]
    device: str
    processes: int
    sums: GradientSums | None = None
    _passes: dict[tuple[str, ...], Memory] = field(default_factory=dict)
    _known: dict[str, tuple[MetaModel, Memory] | None] = field(default_factory=dict)

    def of(self, settings: Mapping[str, Any]) -> Memory | None:
        """None for settings that the recipe cannot have."""
        plain = {path: value for path, value in settings.items() if path != OFFLOAD}
        if str(plain) not in self._known:
            self._known[str(plain)] = self._counted(plain)
        known = self._known[str(plain)]
        try:
            other = _with(self.recipe, settings)
        except (MezzotintError, ValueError):
            return None
        if known is None or OFFLOAD not in settings:
            return None if known is None else known[1]
        outline, memory = known
        outline.blocks = blocks_on_device(other)
        return with_offload(outline, memory)

    def _counted(self, settings: Mapping[str, Any]) -> tuple[MetaModel, Memory] | None:
        of_passes = tuple(path for path in settings if path in _OF_PASSES)
        passes = self._passes.get(of_passes)
        try:
            outline = MetaModel(_with(self.recipe, settings), self.device, self.sums)
        except (MezzotintError, ValueError):
            return None
        sizes = dict.fromkeys(self.batches, 1) if "data.batch_size" in settings else self.batches
        memory = memory_of(outline, {} if passes else sizes, processes=self.processes)
        memory = memory if passes is None else replace(memory, activations=passes.activations)
        self._passes.setdefault(of_passes, memory)
        return outline, memory


def _with(recipe: Recipe, settings: Mapping[str, Any]) -> Recipe:
    for path, value in settings.items():
        recipe = replaced(recipe, path.split("."), value)
    return recipe


def _smaller(recipe: Recipe) -> dict[str, Any]:
    """What makes passes smaller and changes no number, where the recipe has it not."""
    has_one = recipe.data.batch_size == 1 or recipe.run.micro_batch == 1
    of_step = {} if has_one else {"run.micro_batch": 1}
    return of_step | ({} if recipe.run.gradient_checkpointing.enabled else {"run.gradient_checkpointing.enabled": True})


def _tries(recipe: Recipe, *, offloads: bool) -> Iterator[dict[str, Any]]:
    """Settings to be tried, each on top of the recipe."""
    run, small = recipe.run, _smaller(recipe)
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
    """How many blocks of the denoiser are on the device at once, where `run.offload.blocks` is auto; None for all of
    them. With a sentence that says so. free: bytes of memory on the device, None where that is not known."""
    if free is None:
        return 2, f"{OFFLOAD} is auto: 2, for how much memory is free is not known"
    outline.blocks = None
    memory = memory_of(outline, batches, processes=processes)
    if SPARE * memory.peak <= free:
        return None, f"{OFFLOAD} is auto: all blocks have room on the device"
    outline.blocks = 2
    count = at_once(with_offload(outline, memory), free)
    return count, f"{OFFLOAD} is auto: {count} of {len(memory.blocks)} blocks are on the device at once"


def at_once(memory: Memory, room: int) -> int:
    """How many blocks may be on the device at once, two at least. memory: counted with two of them."""
    more = int((room / SPARE - memory.step) // max(memory.blocks))
    return max(2, min(len(memory.blocks), 2 + more))


def _plain(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {one}" for key, one in value.items()) + "}"
    return str(value).lower() if isinstance(value, bool) else str(value)
