"""Where a run starts: which checkpoint it resumes from, and whether recipe, data and model are unchanged."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from mezzotint import durable, outside
from mezzotint.errors import CheckpointError, MezzotintError, Problem, RecipeError
from mezzotint.run_folder import RunFolder, refuse_older_checkpoint
from mezzotint.settings.reading.paths import sections
from mezzotint.settings.reading.read import COMMAND_LINE, Reading
from mezzotint.settings.recipe import Recipe
from mezzotint.settings.resolved import SUMS
from mezzotint.settings.resume_rules import Difference, data_change_problems, find_differences, sort_differences
from mezzotint.settings.sections.run import GradientSums
from mezzotint.training.checkpoints import state
from mezzotint.training.progress import damage_of

Line = Callable[[Sequence[str]], str]


@dataclass(frozen=True, slots=True)
class Start:
    """checkpoint: the one that the run resumes from, None for a new run. sentences: for the user."""

    checkpoint: Path | None
    sentences: tuple[str, ...] = ()

    @property
    def recorded(self) -> Recorded | None:
        """What the checkpoint records about its run; None for a new run."""
        if self.checkpoint is None:
            return None
        values = _values(self.checkpoint)
        return Recorded(values["recipe"], values.get("resolved", {}))


@dataclass(frozen=True, slots=True)
class Recorded:
    """What a checkpoint records, as JSON. recipe: that it was trained with. choices: as in `Resolved`."""

    recipe: dict[str, Any]
    choices: dict[str, Any]

    def gradient_sums(self, recipe: Recipe) -> GradientSums | None:
        """The type of gradient sums kept from the run; None where the recipe sets one, or the run recorded none."""
        sums: GradientSums | None = self.choices.get(SUMS)
        return sums if recipe.run.gradient_dtype == "auto" else None


def recorded_in(checkpoint: Path | None) -> Recorded | None:
    """What a checkpoint records about its run; None for a new run."""
    return Start(checkpoint).recorded


def _values(checkpoint: Path) -> Any:
    return outside.read_json(checkpoint / "state.json", limit=outside.LISTED)


def _reason_unusable(checkpoint: Path) -> str | None:
    """Why a checkpoint with intact files cannot be resumed from; None if it can."""
    try:
        return damage_of(_values(checkpoint))
    except (OSError, ValueError) as error:
        return f"state.json cannot be read ({error})"


@contextmanager
def wrap_state_errors(checkpoint: Path | None) -> Iterator[None]:
    """Context for the first use of a checkpoint's state.json. Raises DamagedCheckpoint for a value that no version has
    written. checkpoint: None for a new run."""
    try:
        yield
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        if checkpoint is None:
            raise
        problem = f"state.json is intact, but its values are wrong ({type(error).__name__}: {error})"
        raise state.DamagedCheckpoint(checkpoint, problem) from error


def choose(resume: str, folder: RunFolder, command: str, damaged: Mapping[Path, str] = MappingProxyType({})) -> Start:
    """Chooses the checkpoint by `run.resume`. Tensor files are not read: they are verified when they are loaded.
    command: the command line that resumes, for messages. damaged: checkpoints known to be damaged, with the reason.

    Raises CheckpointError: E1501 the named checkpoint is damaged, E1505 `never` with existing checkpoints, E1506 all
    are damaged, E1507 no checkpoint where one is required, E1521 an older version wrote it.
    """
    match resume:
        case "never":
            if existing := state.list_checkpoints(folder.checkpoints):
                verb = "exist" if len(existing) > 1 else "exists"
                raise CheckpointError(
                    f"{folder.path}: run.resume is never, but {_names(existing)} {verb}; resume with `{command} "
                    "run.resume=auto`, or choose another folder (run.name, or run.folder where that is set)",
                    code="E1505",
                )
            return Start(None)
        case "auto":
            return _choose_newest(folder.checkpoints, damaged, insist=False)
        case "latest":
            return _choose_newest(folder.checkpoints, damaged, insist=True)
        case _:
            return _choose_named(Path(resume).expanduser(), folder, damaged)


def recorded_state(resume: str, folder: RunFolder) -> Recorded | None:
    """What the checkpoint records that `train` would resume from, for commands that inspect a run; None for a new run,
    and for an unreadable checkpoint, which is reported elsewhere."""
    with suppress(OSError, ValueError, LookupError, TypeError, AttributeError, MezzotintError):
        if resume != "never":
            newest = Start(state.list_checkpoints(folder.checkpoints)[0]) if resume in ("auto", "latest") else None
            record = (newest or choose(resume, folder, "")).recorded
            return record if record is not None and isinstance(record.recipe["run"]["seed"], int) else None
    return None


def _choose_newest(checkpoints: Path, damaged: Mapping[Path, str], *, insist: bool) -> Start:
    newest = state.newest_valid(checkpoints, hashes=False, damaged=damaged, unfit=_reason_unusable)
    skipped = [f"{path.name}: {reason}" for path, reason in newest.passed_over]
    if newest.path is not None:
        return Start(newest.path, tuple(f"passed over {description}" for description in skipped))
    if skipped:
        raise CheckpointError(
            f"{checkpoints}: every checkpoint is damaged ({'; '.join(skipped)}); restore one from a backup, or "
            "start again with another run.name",
            code="E1506",
        )
    if insist:
        raise CheckpointError(
            f"{checkpoints}: run.resume is latest, but there is no checkpoint; write run.resume=auto to start",
            code="E1507",
        )
    return Start(None)


def _choose_named(path: Path, folder: RunFolder, damaged: Mapping[Path, str]) -> Start:
    if not path.is_absolute() and not path.exists() and (folder.checkpoints / path).exists():
        path = folder.checkpoints / path
    if (path / "checkpoints").is_dir():
        return _choose_newest(path / "checkpoints", damaged, insist=True)
    if not (path / "manifest.json").is_file():
        existing = state.list_checkpoints(folder.checkpoints) or state.list_checkpoints(path.parent)
        listing = f"choose from {_names(existing)}" if existing else f"{folder.checkpoints} has none either"
        raise CheckpointError(f"{path}: is neither a checkpoint nor a run folder; {listing}", code="E1507")
    refuse_older_checkpoint(path)
    reason = damaged.get(path) or state.find_damage(path, hashes=False) or _reason_unusable(path)
    if reason is not None:
        raise state.DamagedCheckpoint(path, reason)
    return Start(path)


def _names(paths: list[Path]) -> str:
    return ", ".join(path.name for path in paths[:5]) + (", …" if len(paths) > 5 else "")


def set_aside_later(folder: RunFolder, step: int) -> list[str]:
    """Renames checkpoints after the step that the run returns to, so they are not taken for the run's; returns their
    new names."""
    later = [path for path in state.list_checkpoints(folder.checkpoints) if state.step_of(path) > step]
    return [durable.set_aside(path).name for path in later]


@dataclass(frozen=True, slots=True)
class Identity:
    """What a run depends on other than its recipe: data content, frozen weights, and the hardware."""

    data: str
    parts: Mapping[str, str]
    world_size: int
    device: str
    torch: str
    threads: int
    code: Mapping[str, str] = field(default_factory=dict)
    """The user's callbacks and loss function: see `UserCode.recorded`."""

    def values(self) -> dict[str, Any]:
        """As JSON, for the checkpoint."""
        return asdict(self)


def allowed_changes(reading: Reading, recipe: Recipe) -> list[str]:
    """What may differ from the checkpoint: what `run.allow_change` names; for a fork, everything that it can name
    except the model."""
    return [*recipe.run.allow_change, *((*sections(), "data") if reading.fork is not None else ())]


def changed_settings(values: Mapping[str, Any], recipe: Recipe) -> list[Difference]:
    """Settings that differ from those of a checkpoint's state.json. What the run chose itself and the recipe now gives
    or leaves open has not changed."""
    choices, differing = values.get("resolved", {}), find_differences(values["recipe"], recipe)
    return [
        difference
        for difference in differing
        if difference.path not in choices or difference.new not in (choices[difference.path], "auto")
    ]


def compare(
    restored: state.Restored, reading: Reading, recipe: Recipe, identity: Identity, line: Line | None = None
) -> list[str]:
    """Compares a checkpoint with the current recipe, data and model. Returns sentences for the history: each means "not
    bit-exact from here". reading: where the recipe's settings were written. A fork is a new run: it may change its data
    and what `run.allow_change` can allow without naming them there. line: see `with_line`.

    Raises RecipeError with every refused change at once (E1510 and E1511 settings, E1513 data, E1514 model).
    """
    changed = changed_settings(restored.values, recipe)
    allowed = allowed_changes(reading, recipe)
    recorded, problems = sort_differences(changed, allowed)
    sentences = [f"{d.path}: {d.old} → {d.new}" for d in recorded]
    before, now = restored.values["identity"], identity.values()
    if before["data"] != identity.data:
        sentences.append("the data set's content has changed")
        problems += data_change_problems(allowed)
    is_reinitialized = recipe.model.weights == "random" and any(difference.path == "run.seed" for difference in changed)
    for part, old in before["parts"].items() if not is_reinitialized else ():
        new = identity.parts.get(part)
        if new is not None and new != old:
            sentences.append(f"the weights of the frozen {part} have changed")
            if "model" not in allowed:
                problem = f"the frozen {part} is not the one that the checkpoint was trained with"
                remedy = "put it back, or write run.allow_change=[model] to continue with this one"
                problems.append(Problem("model.path", problem, remedy, "E1514"))
    problems += _changed_code(before.get("code", {}), identity.code, allowed, sentences)
    for name in ("world_size", "device", "torch", "threads"):
        if before[name] != now[name]:
            sentences.append(f"{name.replace('_', ' ')}: {before[name]} → {now[name]}")
    if problems:
        raise refusal(restored.path, recipe, reading, with_line(problems, line))
    return sentences


def _changed_code(
    before: Mapping[str, str], now: Mapping[str, str], allowed: Sequence[str], sentences: list[str]
) -> list[Problem]:
    """Problems with the user's code (E1522): a part that this start lacks, or that has changed without being allowed
    to. sentences: receives what is not bit-exact."""
    problems = []
    for part in sorted({*before, *now}):
        old, new = before.get(part), now.get(part)
        if old == new:
            continue
        sentences.append(f"{part}: {old or 'none'} → {new or 'none'}")
        if new is None:
            problem = f"the run was trained with the {part} {old}, and this start has none"
            remedy = "start it from Python with mezzotint.train(…) and the same callbacks and loss function"
            problems.append(Problem("run.resume", problem, remedy, "E1522"))
        elif "code" not in allowed:
            problem = f"the {part} is {new}, and was {old or 'none'}"
            remedy = "put it back, or write run.allow_change=[code] to continue with this one"
            problems.append(Problem("run.resume", problem, remedy, "E1522"))
    return problems


def refusal(checkpoint: Path, recipe: Recipe, reading: Reading, problems: Sequence[Problem]) -> RecipeError:
    """The error for a recipe that cannot resume from a checkpoint; it suggests a new run. A fork is a new run already:
    what it cannot change, no run from that state can."""
    remedy = f"start a new run: {_new_run_setting(recipe, reading)}"
    if reading.fork is not None and checkpoint.absolute().is_relative_to(reading.fork.absolute()):
        remedy = f"start at step 0, from a copy of {reading.fork / 'recipe.yaml'}: run.folder=FOLDER"
    return RecipeError(
        f"{checkpoint.name} cannot be continued with this recipe: it",
        problems=reading.add_lines(problems),
        closing=f"or {remedy}",
    )


def _new_run_setting(recipe: Recipe, reading: Reading) -> str:
    """The setting for a new run's folder: for a fork the one that was typed, because its folder follows from its
    name."""
    is_named = reading.fork is not None and reading.origin.get("run.folder") != COMMAND_LINE
    if recipe.run.folder is not None and not is_named:
        return "run.folder=FOLDER"
    return f"run.name={durable.free_folder(recipe.run.folder or Path('runs') / recipe.run.name).name}"


def with_line(problems: Sequence[Problem], line: Line | None) -> list[Problem]:
    """The problems; if the only one is a changed length, with the command line that accepts it. line: makes it
    from the names that `run.allow_change` needs."""
    name_of_code = {"E1510": "", "E1513": "data", "E1514": "model"}
    allowed = [name_of_code[problem.code] or problem.where for problem in problems if problem.code in name_of_code]
    if line is None or len(allowed) < len(problems):
        return list(problems)
    remedy = f"put it back, or accept a run that is not bit-exact: {line(allowed)}"
    return [
        problem._replace(remedy=remedy) if problem.where in ("run.steps", "run.epochs") else problem
        for problem in problems
    ]
