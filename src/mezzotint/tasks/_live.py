"""Settings that may change while a run goes: read at the start of an epoch, agreed over all processes, recorded, and
repeated by a run that goes on."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mezzotint.dialects.base import Launched
from mezzotint.errors import MezzotintError
from mezzotint.recipe.live import LIVE, live_values, with_live
from mezzotint.recipe.read import Reading, located, read
from mezzotint.recipe.recipe import Recipe
from mezzotint.recipe.resume_rules import differences
from mezzotint.recipe.wording import shown
from mezzotint.run_folder import RunFolder
from mezzotint.runtimes.base import Runtime
from mezzotint.tasks import _continuing, _foreign, _hub

EVENT = "live settings"
_OF_THIS_START = ("run.live.", "run.folder", "run.resume", "run.allow_change", "sample.seed")
"""Settings that each start may be told otherwise, or works out."""


@dataclass(slots=True)
class LiveSettings:
    """What holds now. recipe: as the run was started, which never changes. apply: gives new values to what trains;
    called on every process. require: raises a MezzotintError for values that the model cannot take. say: of the first
    process."""

    recipe: Recipe
    runtime: Runtime
    folder: RunFolder
    apply: Callable[[Recipe], None]
    require: Callable[[Recipe], None]
    say: Callable[[str], None]
    values: dict[str, Any] = field(default_factory=dict)

    @property
    def now(self) -> Recipe:
        """The recipe with what has been replaced in it."""
        return with_live(self.recipe, self.values)

    def take_back(self, values: Mapping[str, Any]) -> None:
        """What a checkpoint says that held."""
        self.values = dict(values)
        if values:
            self.apply(self.now)

    def begin(self, epoch: int) -> None:
        """Before an epoch's first step: the first process reads the file, or repeats what it has read for this epoch
        in an earlier attempt, and all take it over."""
        if self.recipe.run.live.path is None:
            return
        told = json.dumps(self._decide(epoch)) if self.runtime.is_first else ""
        values = json.loads(self.runtime.share(told))
        changed = values != self.values
        self.values = values
        if changed:
            self.apply(self.now)

    def _decide(self, epoch: int) -> dict[str, Any]:
        for event in self.folder.events():
            if event["event"] == EVENT and event["epoch"] == epoch:
                values = dict(event["values"])
                self._tell(epoch, values, "as before")
                return values
        path = self.recipe.run.live.path
        assert path is not None
        try:
            values = self._from_file(path)
            self.require(with_live(self.recipe, values))
        except (MezzotintError, OSError, ValueError) as error:
            self.say(f"warning: {path} is not followed in epoch {epoch + 1}: {error}")
            values = self.values
        else:
            self._tell(epoch, values, f"by {path}")
        self.folder.record(EVENT, epoch=epoch, values=values)
        return values

    def _from_file(self, path: Path) -> dict[str, Any]:
        """The values that the file gives, without those that the command line keeps."""
        found = self._reading(path)
        given = _given(found)
        others = self._others(found, given)
        if others:
            self.say(f"warning: {path}: {', '.join(others)} cannot change while a run goes; start another run for that")
        values = live_values(found.recipe)
        return {p: values[p] for p in LIVE if p in given and p not in self.recipe.run.live.fixed}

    def _reading(self, path: Path) -> Reading:
        live = self.recipe.run.live
        if live.dialect is None:
            return read(path)
        return _foreign.reading(live.dialect, [*live.line, "--config", str(path)], (), Launched())

    def _others(self, found: Reading, given: Sequence[str]) -> list[str]:
        """What the file gives otherwise than the run was started with, and cannot change."""
        asked = located(_hub.found(_continuing.found(found), insist=False))
        changed = [one.path for one in differences(self.recipe.model_dump(mode="json", by_alias=True), asked)]
        inside = [p for p in changed if any(p == one or one.startswith(f"{p}.") for one in given)]
        kept = (*LIVE, *self.recipe.run.live.fixed)
        return [p for p in inside if p not in kept and not p.startswith(_OF_THIS_START)]

    def _tell(self, epoch: int, values: Mapping[str, Any], how: str) -> None:
        before, after = live_values(self.now), live_values(with_live(self.recipe, values))
        for path in LIVE:
            if before[path] != after[path]:
                self.say(f"epoch {epoch + 1}: {path} is {shown(after[path])} from here, {how}; it was {before[path]}")


def _given(found: Reading) -> Sequence[str]:
    """The settings that a file gives, defaults of a dialect apart."""
    return [path for path, said in found.origin.items() if not said.startswith("default of")]
