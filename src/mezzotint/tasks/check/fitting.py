"""What fits into a given amount of memory: the cheapest settings with which a run fits, found by trying all of them.

The samples of a step, and so the mean that is learned from, stay as they are. Plans differ in seven settings: how many
samples pass through the model at once, whether blocks recompute their activations, how many blocks are on the card,
where the average is, when gradients are used, the optimizer, and the bits of frozen matrices. Of two plans the better
one is

1. the one that changes results less: whose largest change is smaller, then whose second largest is, in the order
   clipping tensor by tensor, moments in 8 bits, frozen matrices in 8 bits, in 4 bits, another optimizer;
2. then the one whose step costs less: FLOPs, plus `FLOPS_OF_A_BYTE` for each byte between host and card;
3. then the one with fewer passes per step, and then with fewer changed settings.

Estimates take seconds, and most plans share them: activations depend on the first two settings only, everything else on
the last three, and what is moved to the host is arithmetic. They are computed once each, and only as far as the search,
which goes through the plans in this order, needs them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product
from typing import Any

from pydantic import ValidationError

from mezzotint.errors import MezzotintError
from mezzotint.runtimes.shared.offload import count_loaded_bytes
from mezzotint.settings.recipe import Recipe, plain_values
from mezzotint.settings.resolved import blocks_on_device
from mezzotint.settings.sections.run import GradientSums
from mezzotint.shapes import Size
from mezzotint.tasks.assemble import needed_parts
from mezzotint.tasks.check.flops import flops_and_recomputed
from mezzotint.tasks.check.memory import Memory, count_samples, measure_passes, memory_of, with_offload
from mezzotint.tasks.check.meta_model import Activations, MetaModel
from mezzotint.tasks.check.plans import (
    AVERAGE,
    CLIP_SCOPE,
    FROZEN,
    IN_BACKWARD,
    MICRO_BATCH,
    OFFLOAD,
    OPTIMIZER,
    RECOMPUTE,
    SUBJECTS,
    Choice,
    Plan,
    Reason,
    Values,
    explain_change,
    format_settings,
)  # fmt: skip
from mezzotint.tasks.holding import refuse_in_backward, refuse_offload, trains_offloaded

SPARE = 1.05
"""Free bytes required for each counted byte."""
_BY_TENSOR, _EIGHT_BIT_MOMENTS, _INT8, _NF4, _ANOTHER_OPTIMIZER = (1 << number for number in range(5))
"""What changes results, the smallest change first: a plan with a larger sum is worse."""


@dataclass
class Search:
    """Plans for a recipe. batches, processes: as in `memory_of`. device, sums: as in `MetaModel`. of_card: whether the
    memory is that of a graphics card, on whatever machine this is computed; host memory is then separate."""

    recipe: Recipe
    batches: Mapping[Size, int]
    device: str
    processes: int = 1
    sums: GradientSums | None = None
    of_card: bool = True
    left_out: dict[str, str] = field(default_factory=dict)
    """Settings that could not be tried, such as for lack of a package, and why."""
    _static: dict[str, tuple[MetaModel, Memory] | None] = field(default_factory=dict)
    _passes: dict[str, dict[Size, Activations]] = field(default_factory=dict)
    _flops: dict[str, int] = field(default_factory=dict)

    def find(self, room: int, host: int | None = None) -> Plan | None:
        """The best plan with which a run fits into `room` bytes, and what waits on the host into `host`; None if there
        is none."""
        for numbers in sorted({choice.numbers for choice in self._variants}):
            for plan in sorted(self._plans(numbers), key=lambda plan: plan.rank):
                if self._exceeds(plan.memory, room, host):
                    continue
                counted = self._with_activations(plan)
                if SPARE * counted.needed <= room and self.is_valid(counted.choice):
                    return counted
        return None

    def smallest(self, host: int | None = None) -> tuple[int, Plan] | None:
        """The smallest card that a plan fits on, in bytes rounded up to two digits, and the best plan for it; None if
        there is none. host: as in `find`."""
        levels = sorted({choice.numbers for choice in self._variants})
        plans = (
            plan for numbers in levels for plan in self._plans(numbers) if not self._exceeds(plan.memory, None, host)
        )
        counted = sorted(map(self._with_activations, plans), key=lambda plan: plan.needed)
        least = next((plan for plan in counted if self.is_valid(plan.choice)), None)
        if least is None:
            return None
        size = _round_up(math.ceil(SPARE * least.needed))
        best = self.find(size, host)
        assert best is not None
        return size, best

    def as_it_is(self) -> Plan:
        """The recipe's own settings, whether or not they fit."""
        return self._count(self._own)

    def is_valid(self, choice: Choice) -> bool:
        """Whether the recipe accepts the settings, and a run could start with them."""
        try:
            recipe = with_settings(self.recipe, choice.settings)
            refuse_in_backward(recipe, self.processes)
            refuse_offload(recipe, self.processes, blocks_on_device(recipe))
        except (MezzotintError, ValidationError):
            return False
        is_apart = trains_offloaded(recipe, blocks_on_device(recipe))
        return not (is_apart and recipe.optim.optimizer.kind == "adamw-8bit")  # its kernels run only on a GPU

    def explain(self, plan: Plan) -> list[Reason]:
        """What each change of a plan saves and costs, on top of those before it."""
        reasons, choice = [], self._own
        before = self._count(choice)
        for name in SUBJECTS:
            option = getattr(plan.choice, name)
            if option == getattr(choice, name):
                continue
            choice = choice._replace(**{name: option})
            after = self._count(choice)
            changed = {path: value for path, value in option.values if path in plan.settings}
            reasons += [Reason(changed, explain_change(name, option, before, after))] if changed else []
            before = after
        return reasons

    @cached_property
    def _samples(self) -> int:
        """The samples of the largest batch of a process."""
        return max(math.ceil(batch / self.processes) for batch in self.batches.values())

    @cached_property
    def _own(self) -> Choice:
        """The recipe's own settings."""
        run, optim = self.recipe.run, self.recipe.optim
        has_several = run.micro_batch is not None and run.micro_batch < self._samples
        blocks = run.offload.blocks
        return Choice(
            Values(((MICRO_BATCH, run.micro_batch if has_several else None),)),
            Values(tuple((f"{RECOMPUTE}.{name}", value) for name, value in run.gradient_checkpointing)),
            Values(((OFFLOAD, 2 if blocks == "auto" else blocks),)),
            Values(((AVERAGE, optim.ema.device),)),
            Values(((IN_BACKWARD, optim.in_backward),)),
            Values(()),
            Values(()),
        )

    @cached_property
    def _own_settings(self) -> dict[str, Any]:
        return self._own.settings

    @cached_property
    def _tree(self) -> dict[str, Any]:
        return plain_values(self.recipe)

    @cached_property
    def _variants(self) -> list[Choice]:
        """The recipe's own settings with every update, optimizer and type of frozen matrices."""
        recipe, own = self.recipe, self._own
        is_by_tensor = recipe.optim.clip.norm is None or recipe.optim.clip.scope == "tensor"
        in_backward = ((IN_BACKWARD, True),) if is_by_tensor else ((CLIP_SCOPE, "tensor"), (IN_BACKWARD, True))
        updates = [Values(((IN_BACKWARD, False),)), Values(in_backward, 0 if is_by_tensor else _BY_TENSOR)]
        updates = updates[: 1 if self.processes > 1 or recipe.optim.accumulation > 1 else 2]
        optimizer = recipe.optim.optimizer
        optimizers = [own.optimizer]
        if optimizer.takes_usual_rates:  # AdamW, of whatever bits
            if optimizer.kind != "adamw-8bit":
                optimizers.append(Values(((f"{OPTIMIZER}.kind", "adamw-8bit"),), _EIGHT_BIT_MOMENTS))
            optimizers.append(Values(((OPTIMIZER, {"kind": "adafactor"}),), _ANOTHER_OPTIMIZER))
        frozen = [own.frozen]
        if recipe.model.has_adapter or set(needed_parts(recipe)) - set(recipe.model.train):
            frozen += [Values(((FROZEN, "int8"),), _INT8)] if recipe.run.low_bit is None else []
            frozen += [Values(((FROZEN, "nf4"),), _NF4)] if recipe.run.low_bit != "nf4" else []
        return [
            own._replace(update=update, optimizer=optimizer, frozen=form)
            for update, optimizer, form in product(updates, optimizers, frozen)
        ]

    def _plans(self, numbers: int) -> Iterator[Plan]:
        """Every plan with these changes of results, without activations."""
        micro_batches = _micro_batches(self._samples)
        recomputes = list(dict.fromkeys((_recomputing(False), _recomputing(True), self._own.recompute)))
        averages = [Values(((AVERAGE, place),)) for place in ("same", "cpu")[: 1 + self._may_move_average]]
        for variant in self._variants:
            if variant.numbers != numbers or self._counted(variant) is None:
                continue
            for micro_batch, recompute, blocks, average in product(
                micro_batches, recomputes, self._blocks(variant), averages
            ):
                choice = variant._replace(micro_batch=micro_batch, recompute=recompute, blocks=blocks, average=average)
                if micro_batch is micro_batches[0] or not choice.settings[IN_BACKWARD]:  # which has one pass per step
                    yield self._without_activations(choice)

    @property
    def _may_move_average(self) -> bool:
        return self.of_card and self.recipe.optim.ema.rule != "none"

    def _blocks(self, variant: Choice) -> list[Values]:
        """How many blocks may be on the card: all, or fewer."""
        counted = self._counted(variant)
        assert counted is not None
        offloads = (self.of_card or self.device != "cpu") and self.recipe.run.runtime != "fsdp"
        trains = not self.recipe.model.has_adapter and "denoiser" in self.recipe.model.train
        most = len(counted[1].blocks) - (not trains) if offloads and not self.recipe.run.compile else 0
        return [Values(((OFFLOAD, count),)) for count in (None, *range(most, 0, -1))]

    def _counted(self, choice: Choice) -> tuple[MetaModel, Memory] | None:
        """The model with an update, optimizer and type of frozen matrices, and its memory without activations and with
        everything on the card; None if they do not go together, or a package for them is not installed."""
        frozen = self._open(_PLAIN._replace(frozen=choice.frozen))
        states = self._open(_PLAIN._replace(update=choice.update, optimizer=choice.optimizer))
        if frozen is None or states is None:
            return None
        memory = states[1]
        return frozen[0], replace(
            frozen[1], masters=memory.masters, gradients=memory.gradients, optimizer=memory.optimizer,
            ema=memory.ema, update=memory.update, keeps_gradients=memory.keeps_gradients,
        )  # fmt: skip

    def _open(self, choice: Choice) -> tuple[MetaModel, Memory] | None:
        key = str(choice)
        if key not in self._static:
            self._static[key] = None
            with suppress(ValidationError):
                recipe = with_settings(self.recipe, choice.settings)
                try:
                    outline = MetaModel(recipe, self.device, self.sums)
                except MezzotintError as error:
                    self.left_out[format_settings(self._differing(choice.settings))] = error.message
                else:
                    self._static[key] = outline, memory_of(outline, {}, processes=self.processes)
        return self._static[key]

    def _without_activations(self, choice: Choice) -> Plan:
        """The plan of a choice with everything but the memory of activations."""
        counted = self._counted(choice)
        assert counted is not None
        outline, memory = counted
        (_, micro), (_, blocks), (_, average) = choice.micro_batch[0][0], choice.blocks[0][0], choice.average[0][0]
        passes = self.recipe.optim.accumulation * math.ceil(self._samples / (micro or self._samples))
        is_average_apart = average == "cpu" and self._may_move_average
        memory = replace(
            memory,
            ema_is_apart=is_average_apart,
            keeps_gradients=memory.keeps_gradients or passes > 1,
        )
        outline.blocks = blocks
        memory = with_offload(outline, memory)
        moved = passes * _bytes_moved(outline, memory, blocks)
        if is_average_apart and not memory.update_is_apart:
            moved += memory.ema // self.recipe.optim.ema.interval
        return Plan(
            self._differing(choice.settings), memory, memory.step if self.of_card else memory.peak,
            self._count_flops(choice.recompute), moved, passes, choice.numbers, choice,
        )  # fmt: skip

    def _count(self, choice: Choice) -> Plan:
        return self._with_activations(self._without_activations(choice))

    def _with_activations(self, plan: Plan) -> Plan:
        memory = replace(plan.memory, activations=self._measure(plan.choice))
        return replace(plan, memory=memory, needed=memory.step if self.of_card else memory.peak)

    def _measure(self, choice: Choice) -> dict[Size, Activations]:
        """Activations of a choice: of its passes only."""
        key = str(choice[:2])
        if key not in self._passes:
            opened = self._open(_PLAIN._replace(recompute=choice.recompute))
            assert opened is not None
            recipe = with_settings(self.recipe, _PLAIN._replace(micro_batch=choice.micro_batch).settings)
            samples = count_samples(recipe, self.batches, processes=self.processes)
            self._passes[key] = measure_passes(opened[0], samples)
        return self._passes[key]

    def _count_flops(self, recompute: Values) -> int:
        """FLOPs of a step with the batch that needs most."""
        key, is_on = str(recompute), dict(recompute.values)[f"{RECOMPUTE}.enabled"]
        if key not in self._flops:
            counted = recompute if is_on else _recomputing(True)  # which counts both
            recipe = with_settings(self.recipe, _PLAIN._replace(recompute=counted).settings)
            size, samples = max(self.batches.items(), key=lambda item: item[0].pixels * item[1])
            samples = math.ceil(samples / self.processes) * recipe.optim.accumulation
            plain, again = flops_and_recomputed(recipe, size)
            self._flops[str(counted)] = samples * (plain + again)
            self._flops[str(_recomputing(False))] = samples * plain
            if not is_on:
                self._flops[key] = samples * plain
        return self._flops[key]

    def _exceeds(self, memory: Memory, room: int | None, host: int | None) -> bool:
        """Whether memory without activations is too much already."""
        return (room is not None and SPARE * memory.steady > room) or (host is not None and memory.held_on_host > host)

    def _differing(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Of all settings those that the recipe does not have already."""
        own, tree = self._own_settings, self._tree
        return {
            path: value
            for path, value in settings.items()
            if (own[path] if path in own else _look_up(tree, path)) != value
            and not (path.startswith(f"{RECOMPUTE}.skip") and not settings[f"{RECOMPUTE}.enabled"])
        }


def ways_to_fit(search: Search, room: int) -> list[Plan]:
    """The best plan for `room` bytes, and if it needs host memory the best that needs none."""
    best = search.find(room)
    if best is None or not best.memory.held_on_host:
        return [best] if best is not None else []
    without = search.find(room, host=0)
    return [best] if without is None else [best, without]


def with_settings(recipe: Recipe, settings: Mapping[str, Any]) -> Recipe:
    """The recipe with other values of settings, by path, as JSON. Raises pydantic's ValidationError."""
    tree = plain_values(recipe)
    for path, value in settings.items():
        *sections, name = path.split(".")
        _look_up(tree, ".".join(sections))[name] = value
    return Recipe.model_validate(tree)


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


def _recomputing(enabled: bool) -> Values:
    values = {"enabled": enabled, "skip_first": 0, "skip_last": 0}
    return Values(tuple((f"{RECOMPUTE}.{name}", value) for name, value in values.items()))


_PLAIN = Choice(
    Values(((MICRO_BATCH, None),)), _recomputing(False), Values(((OFFLOAD, None),)), Values(((AVERAGE, "same"),)),
    Values(((IN_BACKWARD, False),)), Values(()), Values(()),
)  # fmt: skip
"""One pass, with everything kept on the card."""


def _micro_batches(samples: int) -> list[Values]:
    """For every number of passes that a batch can take the fewest samples at once, the fewest passes first."""
    sizes = dict.fromkeys(math.ceil(samples / passes) for passes in range(1, samples + 1))
    return [Values(((MICRO_BATCH, None if size == samples else size),)) for size in sizes]


def _round_up(size: int) -> int:
    """The next number with two digits and zeros."""
    unit: int = 10 ** max(0, len(str(size)) - 2)
    return -(-size // unit) * unit


def _look_up(tree: Mapping[str, Any], path: str) -> Any:
    for name in path.split("."):
        tree = tree[name]
    return tree


def _bytes_moved(outline: MetaModel, memory: Memory, blocks: int | None) -> int:
    """Bytes between host and card for a forward and a backward pass with so many blocks on the card."""
    if blocks is None:
        return 0
    if not memory.update_is_apart:
        return count_loaded_bytes(memory.blocks, blocks, trains=False)
    weights = sum(part.bytes for part in memory.parts if part.name in outline.recipe.model.train)
    gradients = sum(p.numel() * outline.precision.weights.itemsize for p in outline.trained.values())
    return count_loaded_bytes(memory.blocks, blocks, trains=True) + weights - sum(memory.blocks) + gradients
