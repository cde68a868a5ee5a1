"""Where a run begins: which checkpoint it goes on from, whether recipe, data and model still are what they were, and
what the recipe leaves open."""

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
from mezzotint.settings.resume_rules import Difference, data_changed, differences, judge
from mezzotint.settings.sections.run import GradientSums
from mezzotint.training.checkpoints import state
from mezzotint.training.progress import damage_of

Line = Callable[[Sequence[str]], str]


@dataclass(frozen=True, slots=True)
class Start:
    """checkpoint: what the run goes on from, or None for a new one. sentences: for the reader."""

    checkpoint: Path | None
    sentences: tuple[str, ...] = ()

    @property
    def recorded(self) -> Recorded | None:
        """What the checkpoint says of its run; None for a new run."""
        if self.checkpoint is None:
            return None
        values = _values(self.checkpoint)
        return Recorded(values["recipe"], values.get("resolved", {}))


@dataclass(frozen=True, slots=True)
class Recorded:
    """Of a checkpoint, as JSON. recipe: that it was trained with. choices: as in `Resolved`."""

    recipe: dict[str, Any]
    choices: dict[str, Any]

    def gradient_sums(self, recipe: Recipe) -> GradientSums | None:
        """The type of gradient sums that a recipe keeps from its run; None where it says one itself, or there is
        none."""
        kept: GradientSums | None = self.choices.get(SUMS)
        return kept if recipe.run.gradient_dtype == "auto" else None


def recorded_in(checkpoint: Path | None) -> Recorded | None:
    """What a checkpoint says of its run; None for a new run."""
    return Start(checkpoint).recorded


def _values(checkpoint: Path) -> Any:
    return outside.read_json(checkpoint / "state.json", limit=outside.LISTED)


def _unfit(checkpoint: Path) -> str | None:
    """Why a checkpoint whose files are whole cannot be gone on with."""
    try:
        return damage_of(_values(checkpoint))
    except (OSError, ValueError) as error:
        return f"state.json cannot be read ({error})"


@contextmanager
def reading(checkpoint: Path | None) -> Iterator[None]:
    """Within, what a checkpoint's state.json says is used for the first time. Raises DamagedCheckpoint where a value
    turns out to be none that any version has written. checkpoint: None for a new run."""
    try:
        yield
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        if checkpoint is None:
            raise
        what = f"state.json is whole and wrong ({type(error).__name__}: {error})"
        raise state.DamagedCheckpoint(checkpoint, what) from error


def choose(resume: str, folder: RunFolder, command: str, damaged: Mapping[Path, str] = MappingProxyType({})) -> Start:
    """Decides by `run.resume`. Files of tensors are not read for it: they are verified as they are loaded. command: the
    line that goes on, for messages. damaged: checkpoints that have proved to be, with the reason.

    Raises CheckpointError: E1501 the one named is damaged, E1505 `never` where checkpoints are, E1506 all are damaged,
    E1507 nothing where one was asked for, E1521 an older version wrote it.
    """
    match resume:
        case "never":
            if there := state.listed(folder.checkpoints):
                be = "are" if len(there) > 1 else "is"
                raise CheckpointError(
                    f"{folder.path}: run.resume is never, but here {be} {_names(there)}; go on with `{command} "
                    "run.resume=auto`, or choose another folder (run.name, or run.folder where that is set)",
                    code="E1505",
                )
            return Start(None)
        case "auto":
            return _newest(folder.checkpoints, damaged, insist=False)
        case "latest":
            return _newest(folder.checkpoints, damaged, insist=True)
        case _:
            return _at(Path(resume).expanduser(), folder, damaged)


def recorded(resume: str, folder: RunFolder) -> Recorded | None:
    """Of the checkpoint that `train` would resume from, for commands that look at a run; None for a new run, and where
    none can be read, which is said where it is needed."""
    with suppress(OSError, ValueError, LookupError, TypeError, AttributeError, MezzotintError):
        if resume != "never":
            newest = Start(state.listed(folder.checkpoints)[0]) if resume in ("auto", "latest") else None
            record = (newest or choose(resume, folder, "")).recorded
            return record if record is not None and isinstance(record.recipe["run"]["seed"], int) else None
    return None


def _newest(checkpoints: Path, damaged: Mapping[Path, str], *, insist: bool) -> Start:
    newest = state.newest(checkpoints, hashes=False, damaged=damaged, unfit=_unfit)
    passed_over = [f"{path.name}: {reason}" for path, reason in newest.passed_over]
    if newest.path is not None:
        return Start(newest.path, tuple(f"passed over {one}" for one in passed_over))
    if passed_over:
        raise CheckpointError(
            f"{checkpoints}: no checkpoint can be trusted ({'; '.join(passed_over)}); restore one from a backup, or "
            "start anew with another run.name",
            code="E1506",
        )
    if insist:
        raise CheckpointError(
            f"{checkpoints}: run.resume is latest, but no checkpoint is here; write run.resume=auto to start",
            code="E1507",
        )
    return Start(None)


def _at(path: Path, folder: RunFolder, damaged: Mapping[Path, str]) -> Start:
    if not path.is_absolute() and not path.exists() and (folder.checkpoints / path).exists():
        path = folder.checkpoints / path
    if (path / "checkpoints").is_dir():
        return _newest(path / "checkpoints", damaged, insist=True)
    if not (path / "manifest.json").is_file():
        there = state.listed(folder.checkpoints) or state.listed(path.parent)
        listing = f"here are {_names(there)}" if there else f"none is in {folder.checkpoints} either"
        raise CheckpointError(f"{path}: is no checkpoint and no run folder; {listing}", code="E1507")
    refuse_older_checkpoint(path)
    reason = damaged.get(path) or state.damage(path, hashes=False) or _unfit(path)
    if reason is not None:
        raise state.DamagedCheckpoint(path, reason)
    return Start(path)


def _names(paths: list[Path]) -> str:
    return ", ".join(path.name for path in paths[:5]) + (", …" if len(paths) > 5 else "")


def set_aside_later(folder: RunFolder, step: int) -> list[str]:
    """Renames checkpoints beyond the step that is gone back to, so that they are not taken for the run's own; returns
    their new names."""
    later = [path for path in state.listed(folder.checkpoints) if state.step_of(path) > step]
    return [durable.set_aside(path).name for path in later]


@dataclass(frozen=True, slots=True)
class Identity:
    """What a run is made of besides its recipe: data content, frozen weights, and where it computes."""

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


def allowances(reading: Reading, recipe: Recipe) -> list[str]:
    """What may differ from the checkpoint: what `run.allow_change` names; of a fork, everything that it can name but
    the model."""
    return [*recipe.run.allow_change, *((*sections(), "data") if reading.fork is not None else ())]


def changed_settings(values: Mapping[str, Any], recipe: Recipe) -> list[Difference]:
    """Settings that differ from those of a checkpoint's state.json. What the run chose itself, and is written or left
    open now, has not changed."""
    choices, differing = values.get("resolved", {}), differences(values["recipe"], recipe)
    return [one for one in differing if one.path not in choices or one.new not in (choices[one.path], "auto")]


def compare(
    restored: state.Restored, reading: Reading, recipe: Recipe, identity: Identity, line: Line | None = None
) -> list[str]:
    """Holds a checkpoint against what is asked for now. Returns sentences for the history: each means "not bit-exact
    from here". reading: where the recipe's settings were written. A fork may change what `run.allow_change` can allow,
    and its data, without saying so there: it is a run of its own. line: see `with_line`.

    Raises RecipeError with every refused change at once (E1510 and E1511 settings, E1513 data, E1514 model).
    """
    changed = changed_settings(restored.values, recipe)
    allowed = allowances(reading, recipe)
    recorded, problems = judge(changed, allowed)
    sentences = [f"{d.path}: {d.old} → {d.new}" for d in recorded]
    before, now = restored.values["identity"], identity.values()
    if before["data"] != identity.data:
        sentences.append("the data set's content has changed")
        problems += data_changed(allowed)
    drawn_anew = recipe.model.weights == "random" and any(one.path == "run.seed" for one in changed)
    for part, old in before["parts"].items() if not drawn_anew else ():
        new = identity.parts.get(part)
        if new is not None and new != old:
            sentences.append(f"the weights of the frozen {part} have changed")
            if "model" not in allowed:
                what = f"the frozen {part} is not the one that the checkpoint was trained with"
                remedy = "put it back, or write run.allow_change=[model] to go on with this one"
                problems.append(Problem("model.path", what, remedy, "E1514"))
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
    """What is wrong with the user's code (E1522): a part that this start lacks, or that has changed without being
    allowed to. sentences: gets what is not bit-exact."""
    problems = []
    for part in sorted({*before, *now}):
        old, new = before.get(part), now.get(part)
        if old == new:
            continue
        sentences.append(f"{part}: {old or 'none'} → {new or 'none'}")
        if new is None:
            what = f"the run was trained with the {part} {old}, and this start has none"
            remedy = "start it from Python with mezzotint.train(…) and the same callbacks and loss function"
            problems.append(Problem("run.resume", what, remedy, "E1522"))
        elif "code" not in allowed:
            what = f"the {part} is {new}, and was {old or 'none'}"
            remedy = "put it back, or write run.allow_change=[code] to continue with this one"
            problems.append(Problem("run.resume", what, remedy, "E1522"))
    return problems


def refusal(checkpoint: Path, recipe: Recipe, reading: Reading, problems: Sequence[Problem]) -> RecipeError:
    """Why a recipe cannot go on from a checkpoint; with what its writer usually wants, a run of its own. A fork is one
    already: what it cannot change, no run can that takes up the other's state."""
    begin = f"begin a new run beside it: {_beside(recipe, reading)}"
    if reading.fork is not None and checkpoint.absolute().is_relative_to(reading.fork.absolute()):
        begin = f"begin it at step 0, from a copy of {reading.fork / 'recipe.yaml'}: run.folder=FOLDER"
    return RecipeError(
        f"{checkpoint.name} cannot be continued with this recipe: it",
        problems=reading.placed(problems),
        closing=f"or {begin}",
    )


def _beside(recipe: Recipe, reading: Reading) -> str:
    """The setting for a new run's folder. Of a fork it is that which was typed; its folder was worked out of the
    name."""
    is_named = reading.fork is not None and reading.origin.get("run.folder") != COMMAND_LINE
    if recipe.run.folder is not None and not is_named:
        return "run.folder=FOLDER"
    return f"run.name={durable.free_folder(recipe.run.folder or Path('runs') / recipe.run.name).name}"


def with_line(problems: Sequence[Problem], line: Line | None) -> list[Problem]:
    """The problems, where a run of another length is all that cannot be accepted by itself with the whole line that
    goes on. line: what makes it of the words that `run.allow_change` has to have."""
    words = {"E1510": "", "E1513": "data", "E1514": "model"}
    allowed = [words[one.code] or one.where for one in problems if one.code in words]
    if line is None or len(allowed) < len(problems):
        return list(problems)
    remedy = f"put it back, or accept a run that is not bit-exact: {line(allowed)}"
    return [one._replace(remedy=remedy) if one.where in ("run.steps", "run.epochs") else one for one in problems]
