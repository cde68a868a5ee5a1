"""Plans to make a run fit: the values of the searched settings, their order, and what each change saves and costs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from mezzotint.settings.counting import format_bytes
from mezzotint.tasks.check.memory import Memory

FLOPS_OF_A_BYTE = 5200
"""FLOPs that count as much as a byte between host and card: what an RTX 4090 computes (165.2 TFLOP/s in bf16) while
PCIe 4.0 with 16 lanes transfers it (31.5 GB/s), both by their specifications."""


MICRO_BATCH = "run.micro_batch"
RECOMPUTE = "run.gradient_checkpointing"
OFFLOAD = "run.offload.blocks"
AVERAGE = "optim.ema.device"
IN_BACKWARD = "optim.in_backward"
CLIP_SCOPE = "optim.clip.scope"
OPTIMIZER = "optim.optimizer"
FROZEN = "run.frozen_dtype"


class Values(NamedTuple):
    """Values of one of the searched settings. numbers: how it changes results, 0 if it does not."""

    values: tuple[tuple[str, Any], ...]
    numbers: int = 0


class Choice(NamedTuple):
    """An option of each searched setting. The first two determine activations, the last three everything else."""

    micro_batch: Values
    recompute: Values
    blocks: Values
    average: Values
    update: Values
    optimizer: Values
    frozen: Values

    @property
    def settings(self) -> dict[str, Any]:
        """All values, by the path of their setting."""
        return {path: value for option in self for path, value in option.values}

    @property
    def numbers(self) -> int:
        """The changes of results, as a sum that grows with the largest of them."""
        return sum(option.numbers for option in self)


@dataclass(frozen=True, slots=True)
class Plan:
    """Settings with which a run fits. settings: those that differ from the recipe's, by path. memory: of a step. flops,
    moved: of a step, bytes between host and card. passes: forward and backward passes of a step. numbers: whether
    results change by more than rounding."""

    settings: Mapping[str, Any]
    memory: Memory
    needed: int
    flops: int
    moved: int
    passes: int
    numbers: int
    choice: Choice

    @property
    def rank(self) -> tuple[int, int, int, int]:
        """Smaller for better plans, see the module."""
        return self.numbers, self.flops + FLOPS_OF_A_BYTE * self.moved, self.passes, len(self.settings)

    def __str__(self) -> str:
        host = f", and {format_bytes(self.memory.held_on_host)} of host memory" if self.memory.held_on_host else ""
        return f"{format_settings(self.settings) or 'as it is'} ({format_bytes(self.memory.step)}{host})"


class Reason(NamedTuple):
    """Why a plan changes settings. settings: by path. text: what it saves and what it costs."""

    settings: Mapping[str, Any]
    text: str


def format_settings(settings: Mapping[str, Any]) -> str:
    """Settings as they are written on a command line."""
    return " ".join(f"{path}={_format_value(value)}" for path, value in settings.items())


SUBJECTS: dict[str, tuple[str, Callable[[Memory], int]]] = {
    "update": ("gradients", lambda memory: memory.gradients),
    "micro_batch": ("activations", lambda memory: memory.worst),
    "recompute": ("activations", lambda memory: memory.worst),
    "average": ("weights and states", lambda memory: memory.steady),
    "blocks": ("weights and states", lambda memory: memory.steady),
    "optimizer": ("states of the optimizer", lambda memory: memory.optimizer),
    "frozen": ("weights", lambda memory: memory.weights),
}
"""The fields of a choice in the order in which they are explained, and the memory that each is about."""


def explain_change(name: str, option: Values, before: Plan, after: Plan) -> str:
    """What the change of one field of a choice saves, does and costs."""
    label, bytes_of_it = SUBJECTS[name]
    saved = f"{label} {format_bytes(bytes_of_it(before.memory))} → {format_bytes(bytes_of_it(after.memory))}"
    return f"{saved}; {_explain(name, option, before, after)}; {_price(before, after)}"


def _explain(name: str, option: Values, before: Plan, after: Plan) -> str:
    """What a choice does, and whether it changes results."""
    values = dict(option.values)
    match name:
        case "micro_batch":
            return f"the batch in {after.passes} passes instead of {before.passes}, with the same mean"
        case "recompute":
            is_on = values[f"{RECOMPUTE}.enabled"]
            return "blocks are computed again in the backward pass" if is_on else "nothing is computed again"
        case "blocks":
            if values[OFFLOAD] is None:
                return "all blocks stay on the card"
            memory = after.memory
            waiting = len(memory.blocks) - values[OFFLOAD]
            what = [f"{waiting} of {len(memory.blocks)} blocks"] if waiting else []
            what += ["master weights", "gradients", "moments"] if memory.update_is_apart else []
            where = f"{format_bytes(memory.on_host)} of host memory"
            return f"{', '.join(what)} in {where}{', where the update runs' * memory.update_is_apart}"
        case "average":
            return "the average is in host memory" if values[AVERAGE] == "cpu" else "the average is on the card"
        case "update":
            if not values[IN_BACKWARD]:
                return "gradients are kept until the update"
            changes = ", and clipped alone, which changes results" if CLIP_SCOPE in values else ""
            return f"each gradient is used as soon as it is complete{changes}"
        case "optimizer":
            if OPTIMIZER in values:
                return "another optimizer, which needs another optim.lr and gives other results"
            return "moments are rounded to 8 bits, which changes results"
        case "frozen":
            bits = {"int8": 8, "nf4": 4}[values[FROZEN]]
            return f"frozen matrices are rounded to {bits} bits, which changes results, and converted at each use"
        case _:
            raise AssertionError(name)


def _price(before: Plan, after: Plan) -> str:
    """The change of a step's cost."""
    flops = after.flops / before.flops - 1
    moved = after.moved - before.moved
    texts = [f"{flops:+.0%} FLOPs".replace("%", " %")] if after.flops != before.flops else []
    texts += [f"{format_bytes(abs(moved))} {'more' if moved > 0 else 'less'} between host and card"] if moved else []
    return f"a step costs {' and '.join(texts)}" if texts else "the cost of a step stays the same"


def _format_value(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_format_value(item)}" for key, item in value.items()) + "}"
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
