"""Roll-back to the last good checkpoint after training has diverged (`run.on_divergence`).

The history gets a line `rolled-back` before anything else happens. A run that is killed at any moment then does the
same when it resumes: it skips the checkpoints after the good one, and takes rate and step from the line until a
checkpoint contains them.
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
    """to: the checkpoint's step. at: the step at which the run continues with its weights. number: roll-backs so far.
    rate: factor of the learning rates."""

    to: int
    at: int
    number: int
    rate: float

    def apply(self, progress: Progress, timeline: Timeline) -> None:
        """Sets the progress of the good checkpoint to the step at which the run continues."""
        progress.rolled_back, progress.rate, progress.bad_in_a_row = self.number, self.rate, 0
        if self.at > self.to:
            progress.step = self.at
            progress.epoch = timeline.locate(self.at - 1)[0]
            progress.epoch_ends = timeline.locate(self.at)[0] > progress.epoch


def start_roll_back(
    error: Diverged, run: RunSettings, progress: Progress, folder: RunFolder, runtime: Runtime,
    say: Callable[[str], None],
) -> bool:  # fmt: skip
    """Rolls the run back, where the recipe allows it, and records the target in the history. Returns whether it did,
    the same on every process."""
    roll_back = None
    if run.on_divergence == "roll-back" and error.step is not None and progress.rolled_back < run.roll_back.times:
        roll_back = _plan_roll_back(error.step, run, progress, folder) if runtime.is_first else None
    if not runtime.share("back" if roll_back else ""):
        return False
    if runtime.is_first:
        assert roll_back is not None
        folder.record(_EVENT, **asdict(roll_back))
        fault_injection.reach("roll-back.recorded")
        effect = (
            f"the batches up to step {roll_back.at} are skipped"
            if roll_back.at > roll_back.to
            else "its batches are repeated"
        )
        rate = f", rates are multiplied by {roll_back.rate:g}" if roll_back.rate != 1 else ""
        say(f"warning: {error.message}")
        say(
            f"rolled back to the checkpoint of step {roll_back.to} ({roll_back.number} of {run.roll_back.times}); "
            f"{effect}{rate}"
        )
    return True


def _plan_roll_back(step: int, run: RunSettings, progress: Progress, folder: RunFolder) -> RollBack | None:
    """The newest intact checkpoint before the first of the consecutive bad steps; None without one."""
    last_good = step - max(1, progress.bad_in_a_row)
    later = {
        path: "it is later" for path in state.list_checkpoints(folder.checkpoints) if state.step_of(path) > last_good
    }
    newest = state.newest_valid(folder.checkpoints, damaged=later).path
    if newest is None:
        return None
    to, settings = state.step_of(newest), run.roll_back
    return RollBack(to, step if settings.skip else to, progress.rolled_back + 1, progress.rate * settings.factor)


def rolled_back_checkpoints(folder: RunFolder) -> Mapping[Path, str]:
    """Checkpoints that the run has rolled back from and not renamed yet, with the reason to skip them."""
    for event in reversed(folder.events()):
        if event.get("event") in ("resumed", "started"):
            break
        if event.get("event") == _EVENT:
            steps = {path: state.step_of(path) for path in state.list_checkpoints(folder.checkpoints)}
            return {path: "the run has rolled back from it" for path, at in steps.items() if at > event["to"]}
    return {}


def find_pending(folder: RunFolder, progress: Mapping[str, object], runtime: Runtime) -> RollBack | None:
    """The roll-back that the history records for a checkpoint that does not contain it yet. progress: the
    checkpoint's."""
    roll_back = None
    for event in reversed(folder.events() if runtime.is_first else []):
        if event.get("event") == _EVENT and event["to"] == progress["step"]:
            roll_back = RollBack(event["to"], event["at"], event["number"], event["rate"])
            break
        if event.get("event") in ("resumed", "started") and event.get("step", 0) < progress["step"]:
            break  # the run has reached this step again since
    if roll_back is not None and roll_back.number <= int(str(progress.get("rolled_back", 0))):
        roll_back = None
    text = runtime.share(json.dumps(roll_back and asdict(roll_back)))
    return None if text == "null" else RollBack(**json.loads(text))
