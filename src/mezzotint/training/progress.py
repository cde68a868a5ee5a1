"""How far a run has come: all that the loop remembers besides tensors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from mezzotint.stages import StepBatches

_Checks = list[tuple[str, dict[str, Any], type]]
_IDENTITY = {"data": str, "parts": dict, "world_size": int, "device": str, "torch": str, "threads": int}


def damage_of(values: Any) -> str | None:
    """Why what `state.json` says cannot be gone on from, whole as the file may be; None where every value is of its
    kind."""
    if not isinstance(values, dict):
        return "state.json is no table"
    recipe, progress, identity = (_table(values, name) for name in ("recipe", "progress", "identity"))
    checks: _Checks = [(name, values, dict) for name in ("progress", "recipe", "identity", "callbacks")]
    checks += [("run", recipe, dict), ("seed", _table(recipe, "run"), int), ("step", progress, int)]
    checks += [(name, identity, kind) for name, kind in _IDENTITY.items()]
    checks += [(name, progress, type(value)) for name, value in asdict(Progress()).items()]
    checks += [(section, recipe, dict) for section in ("data", "model", "objective", "optim", "sample")]
    optional: _Checks = [("owed", values, list), ("micro_batch", values, int), ("resolved", values, dict)]
    checks += [(name, table, kind) for name, table, kind in optional if name in table]
    for name, table, kind in checks:
        if not _is(table.get(name), kind):
            return f"state.json is whole and wrong: {name} is not there or of another kind"
        if table is progress and kind is int and table[name] < 0:
            return f"state.json is whole and wrong: {name} is {table[name]}"
    states, rates = values["callbacks"].values(), _table(progress, "rate_peak").values()
    if not all(_is(one, int) for one in progress.get("bad_steps", [])) or not all(_is(one, float) for one in rates):
        return "state.json is whole and wrong: bad_steps or rate_peak has something else than numbers"
    if not all(isinstance(one, dict) for one in states):
        return "state.json is whole and wrong: a callback's state is no table"
    return None


def _table(values: Any, name: str) -> dict[str, Any]:
    value = values.get(name)
    return value if isinstance(value, dict) else {}


def _is(value: Any, kind: type) -> bool:
    if kind in (int, float):  # NaN is below nothing
        return not isinstance(value, bool) and isinstance(value, (int, kind)) and abs(value) < 1 << 63
    return isinstance(value, kind)


@dataclass(slots=True)
class Progress:
    """step: optimizer steps attempted. epoch: of the last step. samples: seen so far. last_step: where the run ends.
    seconds: of training, over all attempts.

    bad_in_a_row: non-finite steps just now. bad_steps: the steps of the last thousand that were bad. rate_peak:
    highest rate of each part so far. live: values of settings that were replaced while the run went, by path.
    first_step: steps that lay behind the weights at the run's own start (`run.start.step`). broken: keys of samples
    whose files have proved damaged, sorted (`data.on_corrupt`). rolled_back: how often the run went back to a good
    checkpoint, rate: what rates are multiplied by since.
    """

    step: int = 0
    last_step: int = 0
    epoch: int = 0
    epoch_ends: bool = False
    samples: int = 0
    seconds: float = 0.0
    applied: int = 0
    bad_in_a_row: int = 0
    bad_steps: list[int] = field(default_factory=list)
    rate_peak: dict[str, float] = field(default_factory=dict)
    live: dict[str, Any] = field(default_factory=dict)
    first_step: int = 0
    broken: list[str] = field(default_factory=list)
    rolled_back: int = 0
    rate: float = 1.0

    @property
    def is_done(self) -> bool:
        return self.step >= self.last_step

    def advance(self, step: StepBatches, seconds: float, rates: Mapping[str, float]) -> None:
        """A step was taken. seconds: it took. rates: the learning rate of each part."""
        self.step = step.step + 1
        self.epoch = step.epoch
        self.epoch_ends = step.ends_epoch
        self.samples += step.count
        self.seconds += seconds
        for part, rate in rates.items():
            self.rate_peak[part] = max(self.rate_peak.get(part, 0.0), rate)

    def count_bad(self, step: int, allowed: int) -> bool:
        """Counts a step that was not finite. allowed: in a row, and at least ten of the last thousand. Returns whether
        there are more."""
        self.bad_in_a_row += 1
        self.bad_steps = [one for one in self.bad_steps if one > step - 1000] + [step]
        return self.bad_in_a_row > allowed or len(self.bad_steps) > max(10, allowed)

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps, as JSON."""
        return asdict(self)

    def load(self, state: Mapping[str, Any], *, last_step: int) -> None:
        """Takes back what `state` gave; the run's end is the new recipe's."""
        for name, value in state.items():
            if name in Progress.__slots__:
                setattr(self, name, value)
        self.last_step = last_step
