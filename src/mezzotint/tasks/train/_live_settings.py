"""Settings that may change while a run goes: read at the start of an epoch, agreed over all processes, recorded, and
repeated by a run that goes on."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mezzotint.diffusion.flow_objective import objective_of
from mezzotint.diffusion.learned_variance import LearnedRange
from mezzotint.errors import MezzotintError, RecipeError
from mezzotint.run_folder import RunFolder
from mezzotint.runtimes.base import Runtime
from mezzotint.sampling.sample import check_solver
from mezzotint.settings.reading.read import Reading, located, read
from mezzotint.settings.reading.translation import Launched
from mezzotint.settings.reading.wording import shown
from mezzotint.settings.recipe import LIVE, SINCE_ZERO, Recipe, live_values, with_live
from mezzotint.settings.resume_rules import differences
from mezzotint.tasks.assemble import Caches
from mezzotint.tasks.reading import continuing, foreign, hub, settling
from mezzotint.training.model import TrainableModel

EVENT = "live settings"
_OF_THIS_START = ("run.live.", "run.folder", "run.resume", "run.allow_change", "sample.seed")
"""Settings that each start may be told otherwise, or works out."""


@dataclass(slots=True)
class LiveSettings:
    """What holds now. recipe: as the run was started, which never changes. require: raises a MezzotintError for values
    that the model cannot take, told those that hold now. say: of the first process."""

    recipe: Recipe
    runtime: Runtime
    folder: RunFolder
    require: Callable[[Recipe, Recipe], None]
    say: Callable[[str], None]
    values: dict[str, Any] = field(default_factory=dict)
    _said: set[str] = field(default_factory=set)

    @property
    def now(self) -> Recipe:
        """The recipe with what has been replaced in it."""
        return with_live(self.recipe, self.values)

    def begin(self, epoch: int) -> bool:
        """Before an epoch's first step: the first process reads the file, or repeats what it has read for this epoch
        in an earlier attempt, and all take it over. Returns whether anything has changed."""
        if self.recipe.run.live.path is None:
            return False
        text = json.dumps(self._decide(epoch)) if self.runtime.is_first else ""
        values = json.loads(self.runtime.share(text))
        has_changed = bool(values != self.values)
        self.values = values
        return has_changed

    def _decide(self, epoch: int) -> dict[str, Any]:
        for event in self.folder.events():
            if event["event"] == EVENT and event["epoch"] == epoch:
                values = dict(event["values"])
                self._tell(epoch, values, {}, "as before")
                return values
        path = self.recipe.run.live.path
        assert path is not None
        try:
            reading = self._reading(path)
            values = self._possible(self._from_file(path, reading), reading)
        except (MezzotintError, OSError, ValueError) as error:
            self._warn_once(f"warning: {path} is not followed", f" in epoch {epoch + 1}: {error}")
            values = self.values
        else:
            self._tell(epoch, values, reading.origin, f"by {path}")
            self._pass_on(values, reading)
        self.folder.record(EVENT, epoch=epoch, values=values)
        return values

    def _from_file(self, path: Path, reading: Reading) -> dict[str, Any]:
        """The values that the file gives, without those that the command line keeps."""
        paths = [path for path, source in reading.origin.items() if not source.startswith("default of")]
        others = self._others(reading, paths)
        if others:
            self._warn_once(f"warning: {path}: {', '.join(others)} cannot change while a run goes; start another run")
        values = live_values(reading.recipe)
        values = {p: values[p] for p in LIVE if p in paths and p not in self.recipe.run.live.fixed}
        return dict(self.values) if self._is_of_before(values) else values

    def _changed(self, values: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any]]:
        """(setting, what holds now, what would hold) for each that these values change."""
        before, after = live_values(self.now), live_values(with_live(self.recipe, values))
        yield from ((path, before[path], after[path]) for path in LIVE if before[path] != after[path])

    def _is_of_before(self, values: Mapping[str, Any]) -> bool:
        """Whether a file still says what was followed when zero terminal SNR could not change: a run that was begun
        then keeps to it."""
        if self.recipe.run.live.dialect is None or self.values.keys() & {*SINCE_ZERO}:
            return False
        earlier = {path: value for path, value in values.items() if path not in SINCE_ZERO}
        return bool(self.values) and earlier == self.values

    def _possible(self, values: dict[str, Any], reading: Reading) -> dict[str, Any]:
        """The values without changes that this run cannot make: what the same key of a foreign file asks for stays as
        it is, everything else is followed."""
        before = live_values(self.now)
        for path, _, new in list(self._changed(values)):
            try:
                self.require(with_live(self.now, {path: new}), self.now)
            except (MezzotintError, ValueError) as error:
                reason = error.message if isinstance(error, MezzotintError) else str(error)
                kept = [one for one in LIVE if one == path or self._is_beside(one, path, reading)]
                values |= {one: before[one] for one in kept}
                stays = ", ".join(f"{one} stays {shown(before[one])}" for one in kept)
                self._warn_once(f"warning: {self._called(path, reading)} is not followed: {reason}; {stays}")
        return values

    def _is_beside(self, path: str, refused: str, reading: Reading) -> bool:
        """Whether a setting comes from the key that a refused one comes from."""
        if self.recipe.run.live.dialect is None:
            return False
        origin = reading.origin.get(refused)
        return (origin is not None and reading.origin.get(path) == origin) or {path, refused} == {*SINCE_ZERO}

    def _reading(self, path: Path) -> Reading:
        live = self.recipe.run.live
        if live.dialect is None:
            return read(path)
        option = foreign.dialect(live.dialect).config
        if not option:
            raise RecipeError(f"run.live.dialect: lines of {live.dialect} name no file of settings", code="E1007")
        return foreign.reading(live.dialect, [*live.line, f"--{option}", str(path)], (), Launched())

    def _others(self, reading: Reading, paths: Sequence[str]) -> list[str]:
        """What the file gives otherwise than the run was started with, and cannot change, each in its own words."""
        mine = self.recipe.model_dump(mode="json", by_alias=True)
        recipe = located(hub.with_folders(continuing.with_run(reading), insist=False))
        recipe = settling.settle(recipe, self.runtime.device.type, mine).recipe
        changed = [one.path for one in differences(mine, recipe)]
        inside = [p for p in changed if any(p == one or one.startswith(f"{p}.") for one in paths)]
        kept = (*LIVE, *self.recipe.run.live.fixed)
        others = [p for p in inside if p not in kept and not p.startswith(_OF_THIS_START)]
        return list(dict.fromkeys(self._called(p, reading) for p in others))

    def _called(self, path: str, reading: Reading) -> str:
        return reading.origin.get(path, path) if self.recipe.run.live.dialect is not None else path

    def _tell(self, epoch: int, values: Mapping[str, Any], origin: Mapping[str, str], how: str) -> None:
        for path, old, new in self._changed(values):
            source = origin.get(path, "")
            by = f"by {source}" if " in " in source else how
            self.say(f"epoch {epoch + 1}: {path} is {shown(new)} from here, {by}; it was {old}")

    def _pass_on(self, values: Mapping[str, Any], reading: Reading) -> None:
        """What the dialect has to say of the keys that change something."""
        keys = {reading.origin[path] for path, _, _ in self._changed(values) if path in reading.origin}
        for note in reading.notes:
            if any(note.startswith(f"{key}: ") for key in keys):
                self._warn_once(f"note       {note}")

    def _warn_once(self, text: str, more: str = "") -> None:
        """Says what has not been said yet in this start. more: a rest that names the epoch, and is said along."""
        key = text + re.sub(r"^ in epoch \d+", "", more)
        if key not in self._said:
            self._said.add(key)
            self.say(text + more)


def require_possible(recipe: Recipe, now: Recipe, model: TrainableModel, caches: Caches) -> None:
    """Whether a model can go on with other live settings than those of now. Raises RecipeError: E1003 a clip skip of
    captions that come from the cache, E1077 a schedule that it cannot have, E1465 one whose variance it cannot learn,
    E1070 previews that could not be drawn."""
    if recipe.objective.zero_terminal_snr != now.objective.zero_terminal_snr:
        drawn, family = recipe.sample, model.family
        objective = objective_of(recipe.objective, family.schedule, model.prediction)
        if family.learns_variance:
            LearnedRange(objective.schedule, model.prediction)
        if recipe.run.preview.every is not None:
            check_solver(drawn.solver, objective.schedule, objective.parameterization.solved, drawn)
    before = now.model.clip_skip
    if recipe.model.clip_skip == before:
        return
    if caches.text is not None:
        raise RecipeError("model.clip_skip cannot change while captions come from the cache", code="E1003")
    model.family.skip_layers(recipe.model.clip_skip)
    model.family.skip_layers(before)
