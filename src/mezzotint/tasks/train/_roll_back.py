"""Going back to the last good checkpoint when training has diverged (`run.on_divergence`).

The history has a line `rolled-back` before anything else happens, so that a run that is killed at any moment does the
same when it goes on: it passes over the checkpoints behind the good one, and takes up rate and step from the line until
a checkpoint knows them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from mezzotint import fault_injection
from mezzotint.data.schedule.plan import Timeline
from mezzotint.errors import Diverged
from mezzotint.run_folder import RunFolder
from mezzotint.runtimes.base import Runtime
from mezzotint.settings.sections.run import RunSettings
from mezzotint.training.checkpoints import state
from mezzotint.training.progress import Progress

_EVENT = "rolled-back"


@dataclass(frozen=True, slots=True)
class RollBack:
    """to: the checkpoint's step. at: the step that the run stands at with its weights. number: how many so far. rate:
    what rates are multiplied by."""

    to: int
    at: int
    number: int
    rate: float

    def apply(self, progress: Progress, timeline: Timeline) -> None:
        """Puts the progress of the good checkpoint to where the run goes on."""
        progress.rolled_back, progress.rate, progress.bad_in_a_row = self.number, self.rate, 0
        if self.at > self.to:
            progress.step = self.at
            progress.epoch = timeline.locate(self.at - 1)[0]
            progress.epoch_ends = timeline.locate(self.at)[0] > progress.epoch


def begun(
    error: Diverged, run: RunSettings, progress: Progress, folder: RunFolder, runtime: Runtime,
    say: Callable[[str], None],
) -> bool:  # fmt: skip
    """Whether the run goes back, and not on to its end: then the history says where to. Every process hears the
    same."""
    back = None
    if run.on_divergence == "roll-back" and error.step is not None and progress.rolled_back < run.roll_back.times:
        back = _planned(error.step, run, progress, folder) if runtime.is_first else None
    if not runtime.share("back" if back else ""):
        return False
    if runtime.is_first:
        assert back is not None
        folder.record(_EVENT, **asdict(back))
        fault_injection.reach("roll-back.recorded")
        how = f"the batches up to step {back.at} are left out" if back.at > back.to else "its batches come again"
        rate = f", rates are multiplied by {back.rate:g}" if back.rate != 1 else ""
        say(f"warning: {error.message}")
        say(f"back to the checkpoint of step {back.to} ({back.number} of {run.roll_back.times}); {how}{rate}")
    return True


def _planned(step: int, run: RunSettings, progress: Progress, folder: RunFolder) -> RollBack | None:
    """The newest whole checkpoint from before the first of the bad steps in a row; None without one."""
    last_good = step - max(1, progress.bad_in_a_row)
    behind = {path: "it is later" for path in state.listed(folder.checkpoints) if state.step_of(path) > last_good}
    newest = state.newest(folder.checkpoints, damaged=behind).path
    if newest is None:
        return None
    to, settings = state.step_of(newest), run.roll_back
    return RollBack(to, step if settings.skip else to, progress.rolled_back + 1, progress.rate * settings.factor)


def behind(folder: RunFolder) -> Mapping[Path, str]:
    """Checkpoints that a run has gone back from and not set aside yet."""
    for event in reversed(folder.events()):
        if event.get("event") in ("resumed", "started"):
            break
        if event.get("event") == _EVENT:
            steps = {path: state.step_of(path) for path in state.listed(folder.checkpoints)}
            return {path: "the run has gone back from it" for path, at in steps.items() if at > event["to"]}
    return {}


def pending(folder: RunFolder, progress: Mapping[str, object], runtime: Runtime) -> RollBack | None:
    """What the history says of a checkpoint that does not know it yet. progress: the checkpoint's."""
    back = None
    for event in reversed(folder.events() if runtime.is_first else []):
        if event.get("event") == _EVENT and event["to"] == progress["step"]:
            back = RollBack(event["to"], event["at"], event["number"], event["rate"])
            break
        if event.get("event") in ("resumed", "started") and event.get("step", 0) < progress["step"]:
            break  # the run has come here anew since
    if back is not None and back.number <= int(str(progress.get("rolled_back", 0))):
        back = None
    text = runtime.share(json.dumps(back and asdict(back)))
    return None if text == "null" else RollBack(**json.loads(text))
