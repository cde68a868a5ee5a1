"""What `train` prints before and after the description of a run (`mezzotint.tasks.describe`): progress of reading data,
whether the run starts or resumes, where its results are, and the command lines that resume or extend it."""

from __future__ import annotations

import io
import json
import math
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path

from mezzotint.run_folder import RunFolder
from mezzotint.runtimes.base import Launch
from mezzotint.settings.counting import format_count
from mezzotint.settings.reading.read import Reading
from mezzotint.settings.recipe import Recipe
from mezzotint.settings.resume_rules import DEFAULT_STEPS
from mezzotint.settings.sections.tokens import PART
from mezzotint.training.callbacks.progress_line import LiveLine
from mezzotint.training.checkpoints.state import Restored


def command(folder: RunFolder, launch: Launch, packages: Sequence[str] = ()) -> str:
    """The command line that resumes a run. packages: allowed by `--allow-package`."""
    linked = json.dumps([str(path) for path in folder.linked_folders], ensure_ascii=False)
    arguments = [
        str(_relative_to_cwd(folder.recipe)),
        *([f"run.linked_folders={linked}"] if folder.linked_folders else []),
    ]
    allowed = "".join(f" --allow-package={name}" for name in packages)
    return f"{_launch_command(launch)} {shlex.join(arguments)}{allowed}"


def with_settings(arguments: Sequence[str], settings: Sequence[str], launch: Launch) -> str:
    """The command line of this start with further `key=value` settings. arguments: those after the command."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    keys = {setting.partition("=")[0] for setting in settings}
    others = [argument for argument in arguments[:end] if argument.partition("=")[0] not in keys]
    return f"{_launch_command(launch)} {shlex.join([*others, *settings, *arguments[end:]])}"


def _launch_command(launch: Launch) -> str:
    if launch.world_size == 1:
        return "mezzotint train"
    machines = launch.world_size // launch.local_size
    many = f"--nnodes {machines} " if machines > 1 else ""
    return f"torchrun {many}--nproc-per-node {launch.local_size} -m mezzotint train"


def progress(live: LiveLine, subject: str) -> Callable[[int, int], None]:
    """A progress callback that prints every tenth part once, and nothing for small sets."""
    tenths: set[int] = set()

    def report(done: int, total: int) -> None:
        tenth = 10 * done // max(total, 1)
        if total >= 1000 and tenth not in tenths:
            tenths.add(tenth)
            live.say(f"{subject}: {done:,} of {total:,}")

    return report


def start_line(
    restored: Restored | None, steps: int, changes: Sequence[str], line: str, *, trained_steps: int = 0,
    extension: str = "", is_restart: bool = False,
) -> str:  # fmt: skip
    """Whether the run starts or resumes, and what makes it not bit-exact. trained_steps: steps that the weights of a
    new run were trained for already. extension: how to extend a finished run. is_restart: an earlier start ended before
    its first checkpoint."""
    if restored is None:
        begin = f"continuing after step {trained_steps:,}" if trained_steps else "starting at step 0"
        begin = f"the previous start ended before its first checkpoint; {begin}" if is_restart else begin
        return f"{begin} of {steps:,}; Ctrl-C saves and stops; resume with: {line}"
    if restored.step >= steps:
        return f"{restored.path.name} is the end of this run, nothing is left to train; {extension}"
    exact = f"; not bit-exact from here: {'; '.join(changes)}" if changes else ""
    return f"resuming from {restored.path.name}, {format_count(steps - restored.step, 'step')} to go{exact}"


def extension_line(reading: Reading, recipe: Recipe, arguments: Sequence[str], launch: Launch) -> str:
    """How to train a finished run further: the setting or option that gave its length, and a command line that about
    doubles it. arguments: those after the command."""
    path = "run.epochs" if recipe.run.epochs is not None else "run.steps"
    length = recipe.run.epochs or recipe.run.steps or DEFAULT_STEPS
    # run.extend counts from the recipe's length: a run that was extended before doubles its extension
    longer = recipe.run.extend
    more, unit = (math.ceil(length), path.removeprefix("run.")) if longer is None else (2 * longer.count, longer.unit)
    number = f"{more:.10g}"  # only digits: no 1e+06
    settings = [f"run.extend={number} {unit.removesuffix('s') if number == '1' else unit}"]
    source = reading.origin.get(path, "").removeprefix("default of ")
    flag = source if source.startswith("--") or " in " in source else path
    return f"to train it further, raise {flag}, or run: {with_settings(arguments, settings, launch)}"


def command_allowing(recipe: Recipe, paths: Sequence[str], arguments: Sequence[str], launch: Launch) -> str:
    """The command line of this start with further settings in `run.allow_change`. arguments: those after the
    command."""
    every = dict.fromkeys([*recipe.run.allow_change, *paths])
    return with_settings(arguments, [f"run.allow_change=[{', '.join(every)}]"], launch)


def closing_lines(folder: RunFolder, recipe: Recipe, exports: Sequence[Path], report: Sequence[Path]) -> list[str]:
    """The last lines of `train`: where the results are."""
    whole = "embeddings" if recipe.model.train == (PART,) else "model"
    lines, label = [f"done. {folder.path}"], "adapter" if recipe.model.has_adapter else whole
    in_run = [path for path in exports if path != recipe.run.export.folder]
    averages = [path for path in in_run if path.stem.endswith("-ema") or "_ema" in path.name]
    if averages and len(averages) < len(in_run):  # the one to use first
        lines += [f"  {label:13}{path} (averaged weights, usually the better ones)" for path in averages]
        lines += [f"  or           {path} (the weights of the last step)" for path in in_run if path not in averages]
        lines += [f"  copied to    {path}" for path in exports if path not in in_run]
    else:
        lines += [f"  {label:13}{path}" for path in exports]
    lines += [f"  report       {path}" for path in report]
    if (folder.samples / "grid.png").exists():
        lines.append(f"  samples      {folder.samples / 'grid.png'}")
    lines.append(f"  checkpoints  {folder.checkpoints}")
    if recipe.run.tensorboard:
        lines.append(f"  curves       tensorboard --logdir {shlex.quote(str(folder.logs))}")
    return [
        *lines,
        f"generate images with: mezzotint sample {shlex.quote(str(_relative_to_cwd(folder.path)))} --prompt='…'",
    ]


def _relative_to_cwd(path: Path) -> Path:
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


class Silence(io.StringIO):
    """Discards what the other processes print."""

    def write(self, text: str) -> int:
        return len(text)
