"""Progress of a run: all state of the loop other than tensors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from mezzotint.stages import StepBatches

_Checks = list[tuple[str, dict[str, Any], type]]
_IDENTITY = {"data": str, "parts": dict, "world_size": int, "device": str, "torch": str, "threads": int}


def damage_of(values: Any) -> str | None:
    """Why a run cannot resume from the values of `state.json`, although the file is intact; None if every value has its
    type."""
    if not isinstance(values, dict):
        return "state.json is not a JSON object"
    recipe, progress, identity = (_table(values, name) for name in ("recipe", "progress", "identity"))
    checks: _Checks = [(name, values, dict) for name in ("progress", "recipe", "identity", "callbacks")]
    checks += [("run", recipe, dict), ("seed", _table(recipe, "run"), int), ("step", progress, int)]
    checks += [(name, identity, kind) for name, kind in _IDENTITY.items()]
    checks += [(name, progress, type(value)) for name, value in asdict(Progress()).items()]
    checks += [(section, recipe, dict) for section in ("data", "model", "objective", "optim", "sample")]
    optional: _Checks = [("owed", values, list), ("micro_batch", values, int), ("resolved", values, dict)]
    checks += [(name, table, kind) for name, table, kind in optional if name in table]
    for name, table, kind in checks:
        if not _has_type(table.get(name), kind):
            return f"state.json is intact but invalid: {name} is missing or has the wrong type"
        if table is progress and kind is int and table[name] < 0:
            return f"state.json is intact but invalid: {name} is {table[name]}"
    states, rates = values["callbacks"].values(), _table(progress, "rate_peak").values()
    steps = progress.get("bad_steps", [])
    if not all(_has_type(step, int) for step in steps) or not all(_has_type(rate, float) for rate in rates):
        return "state.json is intact but invalid: bad_steps or rate_peak contains something other than numbers"
    if not all(isinstance(state, dict) for state in states):
        return "state.json is intact but invalid: a callback's state is not a JSON object"
    return None


def _table(values: Any, name: str) -> dict[str, Any]:
    value = values.get(name)
    return value if isinstance(value, dict) else {}


def _has_type(value: Any, kind: type) -> bool:
    if kind in (int, float):  # the comparison is false for NaN
        return not isinstance(value, bool) and isinstance(value, (int, kind)) and abs(value) < 1 << 63
    return isinstance(value, kind)


@dataclass(slots=True)
class Progress:
    """step: optimizer steps attempted. epoch: of the last step. samples: seen so far. last_step: the last step of the
    run. seconds: of training, over all attempts.

    bad_in_a_row: consecutive non-finite steps up to now. bad_steps: non-finite steps among the last thousand.
    rate_peak: highest rate of each part so far. live: values of settings that were changed during the run, by path.
    first_step: steps that the weights had been trained before the run started (`run.start.step`). broken: keys of
    samples whose files are corrupt, sorted (`data.on_corrupt`). rolled_back: how often the run was rolled back to an
    earlier checkpoint. rate: factor of the learning rates since then.
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
        """Counts a step. seconds: its duration. rates: the learning rate of each part."""
        self.step = step.step + 1
        self.epoch = step.epoch
        self.epoch_ends = step.ends_epoch
        self.samples += step.count
        self.seconds += seconds
        for part, rate in rates.items():
            self.rate_peak[part] = max(self.rate_peak.get(part, 0.0), rate)

    def count_bad(self, step: int, allowed: int) -> bool:
        """Counts a non-finite step. allowed: how many are tolerated in a row; of the last thousand steps the same
        number, but at least ten. Returns whether there are more."""
        self.bad_in_a_row += 1
        self.bad_steps = [bad for bad in self.bad_steps if bad > step - 1000] + [step]
        return self.bad_in_a_row > allowed or len(self.bad_steps) > max(10, allowed)

    def state(self) -> dict[str, Any]:
        """The state for a checkpoint, as JSON."""
        return asdict(self)

    def load(self, state: Mapping[str, Any], *, last_step: int) -> None:
        """Restores a result of `state`, except last_step, which comes from the new recipe."""
        for name, value in state.items():
            if name in Progress.__slots__:
                setattr(self, name, value)
        self.last_step = last_step
