"""Settings that may change during a run: read at the start of an epoch, shared with all processes, recorded in the
history, and applied again when the run resumes."""

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
from mezzotint.settings.reading.read import Reading, read, resolve_paths
from mezzotint.settings.reading.translation import Launched
from mezzotint.settings.reading.wording import format_value
from mezzotint.settings.recipe import LIVE, SINCE_ZERO, Recipe, live_values, with_live
from mezzotint.settings.resume_rules import find_differences
from mezzotint.tasks.assemble import Caches
from mezzotint.tasks.reading import choices, continuing, foreign, hub
from mezzotint.training.model import TrainableModel

EVENT = "live settings"
_PER_START_SETTINGS = ("run.live.", "run.folder", "run.resume", "run.allow_change", "sample.seed")
"""Settings that may differ at each start."""


@dataclass(slots=True)
class LiveSettings:
    """The live settings in force. recipe: as the run was started; it never changes. require: called with the new and
    the current recipe, raises a MezzotintError for values that the model cannot take. say: prints, in the first
    process."""

    recipe: Recipe
    runtime: Runtime
    folder: RunFolder
    require: Callable[[Recipe, Recipe], None]
    say: Callable[[str], None]
    values: dict[str, Any] = field(default_factory=dict)
    _printed: set[str] = field(default_factory=set)

    @property
    def current_recipe(self) -> Recipe:
        """The recipe with the current live settings."""
        return with_live(self.recipe, self.values)

    def begin(self, epoch: int) -> bool:
        """Called before an epoch's first step: the first process reads the file, or takes what it read for this epoch
        in an earlier attempt, and all processes apply it. Returns whether anything has changed."""
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
                self._announce(epoch, values, {}, "as before")
                return values
        path = self.recipe.run.live.path
        assert path is not None
        try:
            reading = self._read_file(path)
            values = self._drop_impossible(self._from_file(path, reading), reading)
        except (MezzotintError, OSError, ValueError) as error:
            self._print_once(f"warning: {path} is ignored", f" in epoch {epoch + 1}: {error}")
            values = self.values
        else:
            self._announce(epoch, values, reading.origin, f"by {path}")
            self._print_notes(values, reading)
        self.folder.record(EVENT, epoch=epoch, values=values)
        return values

    def _from_file(self, path: Path, reading: Reading) -> dict[str, Any]:
        """The values in the file, without those fixed on the command line."""
        paths = [path for path, source in reading.origin.items() if not source.startswith("default of")]
        others = self._unchangeable(reading, paths)
        if others:
            self._print_once(f"warning: {path}: {', '.join(others)} cannot change during a run; start another run")
        values = live_values(reading.recipe)
        values = {p: values[p] for p in LIVE if p in paths and p not in self.recipe.run.live.fixed}
        return dict(self.values) if self._predates_live_zero_snr(values) else values

    def _find_changes(self, values: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any]]:
        """(setting, current value, new value) for each setting that these values change."""
        before, after = live_values(self.current_recipe), live_values(with_live(self.recipe, values))
        yield from ((path, before[path], after[path]) for path in LIVE if before[path] != after[path])

    def _predates_live_zero_snr(self, values: Mapping[str, Any]) -> bool:
        """Whether the file still has the values of a run that was started when zero terminal SNR could not change
        during a run: such a run keeps them."""
        if self.recipe.run.live.dialect is None or self.values.keys() & {*SINCE_ZERO}:
            return False
        earlier = {path: value for path, value in values.items() if path not in SINCE_ZERO}
        return bool(self.values) and earlier == self.values

    def _drop_impossible(self, values: dict[str, Any], reading: Reading) -> dict[str, Any]:
        """The values without changes that this run cannot make. All settings from the same key of a foreign file then
        keep their values; all others are applied."""
        before = live_values(self.current_recipe)
        for path, _, new in list(self._find_changes(values)):
            try:
                self.require(with_live(self.current_recipe, {path: new}), self.current_recipe)
            except (MezzotintError, ValueError) as error:
                reason = error.message if isinstance(error, MezzotintError) else str(error)
                kept_settings = [
                    setting for setting in LIVE if setting == path or self._has_same_origin(setting, path, reading)
                ]
                values |= {setting: before[setting] for setting in kept_settings}
                stays = ", ".join(f"{setting} stays {format_value(before[setting])}" for setting in kept_settings)
                self._print_once(f"warning: {self._name_in_file(path, reading)} is ignored: {reason}; {stays}")
        return values

    def _has_same_origin(self, path: str, refused: str, reading: Reading) -> bool:
        """Whether a setting comes from the same key as a rejected one."""
        if self.recipe.run.live.dialect is None:
            return False
        origin = reading.origin.get(refused)
        return (origin is not None and reading.origin.get(path) == origin) or {path, refused} == {*SINCE_ZERO}

    def _read_file(self, path: Path) -> Reading:
        live = self.recipe.run.live
        if live.dialect is None:
            return read(path)
        option = foreign.find_dialect(live.dialect).config
        if not option:
            raise RecipeError(
                f"run.live.dialect: command lines of {live.dialect} have no option for a settings file", code="E1007"
            )
        return foreign.read_command_line(live.dialect, [*live.line, f"--{option}", str(path)], (), Launched())

    def _unchangeable(self, reading: Reading, paths: Sequence[str]) -> list[str]:
        """Names of settings that differ from those the run was started with and cannot change, as the file names
        them."""
        recorded = self.recipe.model_dump(mode="json", by_alias=True)
        recipe = resolve_paths(hub.with_folders(continuing.with_run(reading), insist=False))
        recipe = choices.choose(recipe, self.runtime.device.type, recorded).recipe
        changed = [setting.path for setting in find_differences(recorded, recipe)]
        inside = [p for p in changed if any(p == setting or setting.startswith(f"{p}.") for setting in paths)]
        kept_settings = (*LIVE, *self.recipe.run.live.fixed)
        others = [p for p in inside if p not in kept_settings and not p.startswith(_PER_START_SETTINGS)]
        return list(dict.fromkeys(self._name_in_file(p, reading) for p in others))

    def _name_in_file(self, path: str, reading: Reading) -> str:
        return reading.origin.get(path, path) if self.recipe.run.live.dialect is not None else path

    def _announce(self, epoch: int, values: Mapping[str, Any], origin: Mapping[str, str], source_text: str) -> None:
        for path, old, new in self._find_changes(values):
            source = origin.get(path, "")
            by = f"by {source}" if " in " in source else source_text
            self.say(f"epoch {epoch + 1}: {path} is {format_value(new)} from here, {by}; it was {old}")

    def _print_notes(self, values: Mapping[str, Any], reading: Reading) -> None:
        """Prints the dialect's notes about keys that change something."""
        keys = {reading.origin[path] for path, _, _ in self._find_changes(values) if path in reading.origin}
        for note in reading.notes:
            if any(note.startswith(f"{key}: ") for key in keys):
                self._print_once(f"note       {note}")

    def _print_once(self, text: str, details: str = "") -> None:
        """Prints a text once per start. details: a rest that names the epoch and is not compared."""
        key = text + re.sub(r"^ in epoch \d+", "", details)
        if key not in self._printed:
            self._printed.add(key)
            self.say(text + details)


def require_possible(recipe: Recipe, now: Recipe, model: TrainableModel, caches: Caches) -> None:
    """Checks that a model can continue with other live settings. Raises RecipeError: E1003 clip skip with cached
    captions, E1077 an impossible schedule, E1465 a schedule whose variance the model cannot learn, E1070 previews that
    cannot be generated."""
    if recipe.objective.zero_terminal_snr != now.objective.zero_terminal_snr:
        sample, family = recipe.sample, model.family
        objective = objective_of(recipe.objective, family.schedule, model.prediction)
        if family.learns_variance:
            LearnedRange(objective.schedule, model.prediction)
        if recipe.run.preview.every is not None:
            check_solver(sample.solver, objective.schedule, objective.parameterization.solver_prediction, sample)
    before = now.model.clip_skip
    if recipe.model.clip_skip == before:
        return
    if caches.text is not None:
        raise RecipeError("model.clip_skip cannot change while captions come from the cache", code="E1003")
    model.family.skip_layers(recipe.model.clip_skip)
    model.family.skip_layers(before)
