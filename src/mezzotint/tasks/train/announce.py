"""What `train` prints around the account of a run (`mezzotint.tasks.describe`): progress of reading data, whether the
run starts or resumes, at its end where everything is, and the command lines that resume or extend it."""

from __future__ import annotations

import io
import json
import math
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path

from mezzotint.run_folder import RunFolder
from mezzotint.runtimes.base import Launch
from mezzotint.settings.counting import counted
from mezzotint.settings.reading.read import Reading
from mezzotint.settings.recipe import Recipe
from mezzotint.settings.resume_rules import DEFAULT_STEPS
from mezzotint.settings.sections.tokens import PART
from mezzotint.training.callbacks.progress_line import LiveLine
from mezzotint.training.checkpoints.state import Restored


def command(folder: RunFolder, launch: Launch, packages: Sequence[str] = ()) -> str:
    """The line that goes on with a run, to be typed as it stands. packages: that were allowed to be imported."""
    linked = json.dumps([str(path) for path in folder.linked_folders], ensure_ascii=False)
    words = [str(_from_here(folder.recipe)), *([f"run.linked_folders={linked}"] if folder.linked_folders else [])]
    allowed = "".join(f" --allow-package={name}" for name in packages)
    return f"{_starter(launch)} {shlex.join(words)}{allowed}"


def with_settings(words: Sequence[str], settings: Sequence[str], launch: Launch) -> str:
    """The line of this start, to be typed as it stands, with `key=value` laid over it. words: those behind the verb."""
    end = words.index("--") if "--" in words else len(words)
    keys = {setting.partition("=")[0] for setting in settings}
    kept = [word for word in words[:end] if word.partition("=")[0] not in keys]
    return f"{_starter(launch)} {shlex.join([*kept, *settings, *words[end:]])}"


def _starter(launch: Launch) -> str:
    if launch.world_size == 1:
        return "mezzotint train"
    machines = launch.world_size // launch.local_size
    many = f"--nnodes {machines} " if machines > 1 else ""
    return f"torchrun {many}--nproc-per-node {launch.local_size} -m mezzotint train"


def progress(live: LiveLine, what: str) -> Callable[[int, int], None]:
    """A progress callback that says every tenth part once, and nothing for small sets."""
    tenths: set[int] = set()

    def tell(done: int, total: int) -> None:
        tenth = 10 * done // max(total, 1)
        if total >= 1000 and tenth not in tenths:
            tenths.add(tenth)
            live.say(f"{what}: {done:,} of {total:,}")

    return tell


def start_line(
    restored: Restored | None, steps: int, changes: Sequence[str], line: str, *, behind: int = 0, longer: str = "",
    again: bool = False,
) -> str:  # fmt: skip
    """Whether the run starts or goes on, and what of it is not bit-exact. behind: steps that lie behind the weights of
    a new run. longer: what would train a run further that is at its end. again: it has started before, and ended before
    its first checkpoint."""
    if restored is None:
        begin = f"going on after step {behind:,}" if behind else "starting at step 0"
        begin = f"the start before this one ended before its first checkpoint; {begin}" if again else begin
        return f"{begin} of {steps:,}; Ctrl-C saves and stops; to go on: {line}"
    if restored.step >= steps:
        return f"{restored.path.name} is the end of this run: nothing is left to train; {longer}"
    exact = f"; not bit-exact from here: {'; '.join(changes)}" if changes else ""
    return f"going on from {restored.path.name}, {counted(steps - restored.step, 'step')} to go{exact}"


def further(reading: Reading, recipe: Recipe, words: Sequence[str], launch: Launch) -> str:
    """What would train a run further that is at its end: the setting, as who wrote it knows it, and a line that is
    about twice as long. words: those behind the verb."""
    path = "run.epochs" if recipe.run.epochs is not None else "run.steps"
    length = recipe.run.epochs or recipe.run.steps or DEFAULT_STEPS
    # the setting counts from the recipe's length, so that a run that is longer already doubles it
    longer = recipe.run.extend
    more, unit = (math.ceil(length), path.removeprefix("run.")) if longer is None else (2 * longer.count, longer.unit)
    number = f"{more:.10g}"  # digits alone, as far as a run can be long: no 1e+06, and none is lost
    settings = [f"run.extend={number} {unit.removesuffix('s') if number == '1' else unit}"]
    source = reading.origin.get(path, "").removeprefix("default of ")
    flag = source if source.startswith("--") or " in " in source else path
    return f"to train it further, raise {flag}, or lay it over the line: {with_settings(words, settings, launch)}"


def allowing(recipe: Recipe, paths: Sequence[str], words: Sequence[str], launch: Launch) -> str:
    """The line of this start with a few more settings that may change. words: those behind the verb."""
    every = dict.fromkeys([*recipe.run.allow_change, *paths])
    return with_settings(words, [f"run.allow_change=[{', '.join(every)}]"], launch)


def at_the_end(folder: RunFolder, recipe: Recipe, exports: Sequence[Path], report: Sequence[Path]) -> list[str]:
    """Where everything lies."""
    words = "new words" if recipe.model.train == (PART,) else "model"
    lines, what = [f"done. {folder.path}"], "adapter" if recipe.model.has_adapter else words
    own = [path for path in exports if path != recipe.run.export.folder]
    averages = [path for path in own if path.stem.endswith("-ema") or "_ema" in path.name]
    if averages and len(averages) < len(own):  # the one to use first
        lines += [f"  {what:13}{path} (the average of the weights, usually the better one)" for path in averages]
        lines += [f"  or           {path} (the weights of the last step)" for path in own if path not in averages]
        lines += [f"  copied to    {path}" for path in exports if path not in own]
    else:
        lines += [f"  {what:13}{path}" for path in exports]
    lines += [f"  report       {path}" for path in report]
    if (folder.samples / "grid.png").exists():
        lines.append(f"  samples      {folder.samples / 'grid.png'}")
    lines.append(f"  checkpoints  {folder.checkpoints}")
    if recipe.run.tensorboard:
        lines.append(f"  curves       tensorboard --logdir {shlex.quote(str(folder.logs))}")
    return [*lines, f"to draw: mezzotint sample {shlex.quote(str(_from_here(folder.path)))} --prompt='…'"]


def _from_here(path: Path) -> Path:
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


class Silence(io.StringIO):
    """Where the other processes' words go."""

    def write(self, text: str) -> int:
        return len(text)
