"""Where a recipe begins: a file or the name of a shipped one, `key=value` overrides, and out comes a typed Recipe with
the origin of every value, or everything that is wrong with it at once. Nothing here imports torch.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from mezzotint.errors import Problem, RecipeError
from mezzotint.recipe.reading import _secrets, yaml_rules
from mezzotint.recipe.reading._overrides import apply
from mezzotint.recipe.reading._problems import Issue, Place, check, dotted
from mezzotint.recipe.reading.paths import by_path, open_families
from mezzotint.recipe.reading.yaml_rules import Document
from mezzotint.recipe.recipe import Recipe

_PACKAGE = Path(__file__).resolve().parents[2]
ASSETS = _PACKAGE / "assets"
"""What travels in the wheel: recipes, model configurations, tokenizers."""

MODELS = ASSETS / "models"
"""Models that ship with Mezzotint, a folder each; `model.path` may be its name."""

DATA = ASSETS / "data"
"""Data sets that ship with Mezzotint, a folder each; `data.path` may be its name."""

_MOST = 50
"""So many problems are told of one recipe."""

COMMAND_LINE = "command line"

SCHEMA_COMMENT = "# yaml-language-server: $schema="
"""How the first line of a shipped recipe begins: editors then check and complete it."""


@dataclass(frozen=True, slots=True)
class Reading:
    """A recipe as it was read. name: what the user called it. path: its file, absolute; None when it came from a text.
    origin: dotted path → `line 5` or `command line`; what is absent is a default. digest: of the effective recipe,
    see `digest_of`. notes: what a dialect dropped or changed, a sentence each. verb: what a foreign line asks for, ""
    for what the verb that read it does. packages: what the command line allows to be imported for it. fork: the run
    folder whose newest checkpoint a new run begins from. formerly: dotted path → what an earlier Mezzotint made of the
    same line, which a run that began so keeps."""

    recipe: Recipe
    name: str
    path: Path | None
    origin: dict[str, str]
    digest: str
    notes: tuple[str, ...] = ()
    verb: str = ""
    fork: Path | None = None
    packages: tuple[str, ...] = ()
    formerly: Mapping[str, Any] = field(default_factory=dict)

    def placed(self, problems: Iterable[Problem]) -> list[Problem]:
        """Problems of settings with the lines of the recipe's file that give them; those of defaults say so."""
        return [
            replace(problem, line=problem.line or self._line(problem.where), is_default=self._is_default(problem.where))
            for problem in problems
        ]

    def _line(self, path: str) -> int | None:
        said = self._said(path)
        return int(said.removeprefix("line ")) if re.fullmatch(r"line \d+", said) else None

    def _is_default(self, path: str) -> bool:
        return path in by_path() and not self._said(path)

    def _said(self, path: str) -> str:
        """Where a setting, or one within it, was written; "" for a default."""
        inside = (said for given, said in self.origin.items() if given == path or given.startswith(f"{path}."))
        return self.origin.get(path) or next(inside, "")


def read(source: str | Path, overrides: Sequence[str] = ()) -> Reading:
    """Reads a recipe file, or a shipped recipe by its name, and lays `key=value` texts over it.

    Raises RecipeError with every problem found, in the order of the file, the command line's after it: E1001 unknown
    key, E1002 type, E1003 values that contradict each other, E1004 not YAML, E1005 a key twice, E1006 what the YAML
    rules refuse, E1007 out of range, E1008 an override that cannot be laid over, E1009 a secret, E1011 no such recipe.
    """
    path = _find(source)
    return _reading(yaml_rules.read_file(path, str(source)), str(source), path, overrides)


def read_text(text: str, name: str = "recipe", overrides: Sequence[str] = ()) -> Reading:
    """`read` for a recipe that is no file. name: what messages call it."""
    return _reading(text, name, None, overrides)


def digest_of(recipe: Recipe) -> str:
    """SHA-256 of a recipe's canonical JSON (keys sorted, no spaces, UTF-8): equal for equal settings, however they were
    written."""
    tree = recipe.model_dump(mode="json", by_alias=True)
    text = json.dumps(tree, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def shipped_recipes() -> dict[str, Path]:
    """Recipes that travel with Mezzotint, by name, sorted: those of the package, and of the source tree it runs
    from."""
    found: dict[str, Path] = {}
    for folder in (_source_recipes(), ASSETS / "recipes"):
        if folder is not None and folder.is_dir():
            found |= {path.stem: path for path in folder.glob("*.yaml")}
    return dict(sorted(found.items()))


def located(reading: Reading) -> Recipe:
    """The recipe with the paths of `model`, `optim.ema.start`, `data.path`, `data.holdout.path`,
    `data.clips.stills_path`, `run.start.optimizer`, `run.export.folder` and those of `sample` made absolute, all but
    `run.export.folder` where they were found, and `~` opened everywhere.

    What is not found stays as written, for the task to say so; `places` lists where it was looked for.
    """
    recipe, beside = reading.recipe, reading.path.parent if reading.path else None
    config = locate(recipe.model.config, beside, shipped=MODELS) if recipe.model.config is not None else None
    place = locate(recipe.model.path, beside, shipped=MODELS)
    vae = locate(recipe.model.vae, beside) if recipe.model.vae is not None else None
    text = locate(recipe.model.text_encoder, beside) if recipe.model.text_encoder is not None else None
    over = tuple(locate(path, beside) for path in recipe.model.over)
    named = {"path": place, "config": config, "vae": vae, "over": over, "text_encoder": text}
    model = recipe.model.model_copy(update=named)
    optim = recipe.optim
    if optim.ema.start is not None:
        start = locate(optim.ema.start, beside, shipped=MODELS)
        optim = optim.model_copy(update={"ema": optim.ema.model_copy(update={"start": start})})
    cache = recipe.data.cache.model_copy(update={"path": recipe.data.cache.path.expanduser()})
    folders = tuple(locate(path, beside, shipped=DATA) for path in recipe.data.path)
    sets = {name: locate(path, beside, shipped=DATA) for name, path in recipe.data.holdout.path.items()}
    holdout = recipe.data.holdout.model_copy(update={"path": sets})
    beside_clips = tuple(locate(path, beside, shipped=DATA) for path in recipe.data.clips.stills_path)
    clips = recipe.data.clips.model_copy(update={"stills_path": beside_clips})
    data = recipe.data.model_copy(update={"path": folders, "cache": cache, "holdout": holdout, "clips": clips})
    drawn = recipe.sample
    files = {"file": drawn.file, "image": drawn.image}
    found = {name: locate(path, beside) if path is not None else None for name, path in files.items()}
    second = drawn.refiner.path
    refiner = drawn.refiner.model_copy(
        update={"path": locate(second, beside, shipped=MODELS) if second is not None else None}
    )
    sample = drawn.model_copy(update=found | {"refiner": refiner})
    folder = recipe.run.folder.expanduser() if recipe.run.folder is not None else None
    resume = str(Path(recipe.run.resume).expanduser()) if recipe.run.resume.startswith("~") else recipe.run.resume
    export = recipe.run.export
    if export.folder is not None:
        export = export.model_copy(update={"folder": export.folder.expanduser().absolute()})
    begin = recipe.run.start
    if begin.optimizer is not None:
        begin = begin.model_copy(update={"optimizer": locate(begin.optimizer, beside)})
    run = recipe.run.model_copy(update={"folder": folder, "resume": resume, "export": export, "start": begin})
    return recipe.model_copy(update={"model": model, "optim": optim, "data": data, "sample": sample, "run": run})


def locate(path: Path, beside: Path | None, *, shipped: Path | None = None) -> Path:
    """An existing path, absolute; what exists nowhere stays as written, `~` opened. beside: the recipe's folder.
    shipped: a folder of what ships by name. A name with a range in braces is looked for by its folder."""
    if "{" in path.name:
        return locate(path.parent, beside) / path.name
    return next((place for place in places(path, beside, shipped=shipped) if place.exists()), path.expanduser())


def places(path: Path, beside: Path | None, *, shipped: Path | None = None) -> tuple[Path, ...]:
    """Where a path of a recipe is looked for, in order: beside the recipe, in the current folder, among what ships."""
    opened = path.expanduser()
    if opened.is_absolute():
        return (opened,)
    roots = [root for root in (beside, Path.cwd()) if root is not None]
    named = [shipped / opened] if shipped is not None and len(opened.parts) == 1 else []
    found = [Path(root, opened).absolute() for root in roots] + named
    return tuple(dict.fromkeys(found))


def _reading(text: str, name: str, path: Path | None, overrides: Sequence[str]) -> Reading:
    document = yaml_rules.load(text, name)
    open_families(_families(document.tree, overrides))
    applied = apply(document.tree, overrides)
    recipe, issues = check(applied.tree)
    problems = _secret_problems(text, document, applied.tree, applied.given)
    hidden = {problem.where for problem in problems}
    problems += [*document.problems, *applied.problems]
    for issue in issues:
        if issue.where not in hidden:
            problems.append(_problem(issue, document, applied.given))
    if problems or recipe is None:
        raise RecipeError(name, problems=_shortened(_in_order(problems)))
    return Reading(recipe, name, path, _origin(document, applied.given), digest_of(recipe))


def _families(tree: dict[str, Any], overrides: Sequence[str]) -> Iterator[str]:
    """The families that a recipe and its overrides name."""
    model = tree.get("model")
    yield str(model.get("family", "")) if isinstance(model, dict) else ""
    yield from (word.partition("=")[2] for word in overrides if word.startswith("model.family="))


def _problem(issue: Issue, document: Document, given: frozenset[str]) -> Problem:
    place = issue.place
    if issue.code == "E1003" and not _from_command_line(issue.where, given):
        place = tuple(issue.where.split("."))
    line = None if _touches(issue, given) else _line_of(place, document.lines)
    return Problem(issue.where, issue.what, issue.remedy, issue.code, line)


def _touches(issue: Issue, given: frozenset[str]) -> bool:
    """Whether the command line set what is wrong; of a check of several settings, the one it is shown at."""
    return _from_command_line(issue.where if issue.code == "E1003" else dotted(issue.place), given)


def _from_command_line(path: str, given: frozenset[str]) -> bool:
    return any(path == one or path.startswith(one + ".") for one in given)


def _line_of(place: Place, lines: dict[Place, int]) -> int | None:
    """The line of a place, or of the nearest place around it that the file has."""
    for end in range(len(place), 0, -1):
        if place[:end] in lines:
            return lines[place[:end]]
    return None


def _secret_problems(text: str, document: Document, tree: dict[str, Any], given: frozenset[str]) -> list[Problem]:
    what = "looks like {}; recipes are copied and shared"
    remedy = "remove it, and keep it in the environment or the tool's own login"
    found: dict[tuple[int | None, str], Problem] = {}
    for place, kind in _secrets.in_tree(tree):
        where = dotted(place)
        line = None if _from_command_line(where, given) else _line_of(place, document.lines)
        found[line, where] = Problem(where, what.format(kind), remedy, "E1009", line)
    seen = {line for line, _ in found}
    for line, kind in _secrets.in_lines(text):
        if line not in seen:
            found[line, "comment"] = Problem("text", what.format(kind), remedy, "E1009", line)
    return list(found.values())


def _in_order(problems: list[Problem]) -> list[Problem]:
    """By line, the command line's last, each said once."""
    once = list(dict.fromkeys(problems))
    return sorted(once, key=lambda p: (p.line is None, p.line or 0))


def _shortened(problems: list[Problem]) -> list[Problem]:
    """A file that is no recipe at all is not told line by line."""
    if len(problems) <= _MOST:
        return problems
    rest = f"and {len(problems) - _MOST} more; this does not look like a recipe of Mezzotint"
    last = problems[_MOST]
    return [*problems[:_MOST], Problem("…", rest, "`mezzotint ls` lists complete ones", last.code, last.line)]


def _origin(document: Document, given: frozenset[str]) -> dict[str, str]:
    origin = {dotted(place): f"line {line}" for place, line in document.lines.items() if place}
    for path in given:
        origin = {key: value for key, value in origin.items() if not key.startswith(path + ".")}
        origin[path] = COMMAND_LINE
    return origin


def _find(source: str | Path) -> Path:
    path = Path(source).expanduser()
    if path.is_file():
        return path.absolute()
    if path.is_dir():
        raise RecipeError(f"{source} is a folder and no run; give a recipe file, or a run's folder", code="E1011")
    shipped = shipped_recipes()
    name = path.name.removesuffix(".yaml").removesuffix(".yml")
    if len(path.parts) == 1:
        for known, where in shipped.items():
            if known.replace("-", "_") == name.replace("-", "_"):
                return where
    near = difflib.get_close_matches(name, [*shipped, *_files_beside(path)], n=1, cutoff=0.5)
    if Path("runs", path, "recipe.yaml").is_file():
        near = [str(Path("runs", path))]
    hint = f"did you mean {near[0]}?" if near else "`mezzotint ls` lists the shipped recipes"
    if path.suffix not in (".yaml", ".yml"):
        raise RecipeError(f"there is no recipe {source}; {hint}", code="E1011")
    place = " in the current folder" if len(path.parts) == 1 else ""
    said = hint if near else "a name without .yaml is a shipped recipe, which `mezzotint ls` lists"
    raise RecipeError(f"there is no file {source}{place}; {said}", code="E1011")


def _files_beside(path: Path) -> list[str]:
    try:
        return [str(found) for found in path.parent.glob("*.yaml")]
    except OSError:
        return []


def _source_recipes() -> Path | None:
    root = _PACKAGE.parent.parent
    return root / "recipes" if (root / "pyproject.toml").is_file() else None
