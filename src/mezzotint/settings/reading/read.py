"""Reads a recipe: from a file or the name of a shipped one, with `key=value` overrides, to a typed Recipe with the
origin of every value, or to all of its problems. Does not import torch."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, get_origin

from mezzotint import outside, registry
from mezzotint.assets import ASSETS, DATA, MODELS
from mezzotint.errors import Problem, RecipeError, did_you_mean
from mezzotint.settings.base import Located, Section, with_values
from mezzotint.settings.families.base import FOLDER as FAMILIES
from mezzotint.settings.families.base import family_spec
from mezzotint.settings.reading import yaml_rules
from mezzotint.settings.reading._overrides import apply
from mezzotint.settings.reading._problems import Issue, check, dotted_path
from mezzotint.settings.reading.paths import Shape, by_path, open_families, open_formats, shape_of
from mezzotint.settings.reading.yaml_rules import Document
from mezzotint.settings.recipe import Recipe
from mezzotint.settings.sections.data import CacheSettings

S = TypeVar("S", bound=Section)

_MAX_PROBLEMS = 50
"""The most problems printed for one recipe."""

COMMAND_LINE = "command line"

_TOKEN = re.compile(
    r"\bhf_[A-Za-z0-9]{16,}|\bgh[pousr]_[A-Za-z0-9]{20,}|\bgithub_pat_[A-Za-z0-9_]{20,}|\bsk-[A-Za-z0-9_-]{20,}"
    r"|\bAKIA[0-9A-Z]{16}\b|\bxox[abpr]-[A-Za-z0-9-]{10,}|\bwandb_v[0-9]_[A-Za-z0-9_]{20,}"
)
_URL = re.compile(r"\b[a-z][a-z0-9+.-]*://[^\s/@:'\"]*:[^\s/@'\"]+@", re.IGNORECASE)
_SIGNED = re.compile(
    r"\b[a-z][a-z0-9+.-]*:/\S*[?&#;](?:[^\s=&]*[-_])?(?:signature|sig|token|credential|secret|password|key|access_?key)=",
    re.IGNORECASE,
)
_BARE_KEY = re.compile(r"[0-9a-f]{40}")
_SECRET_NAME = re.compile(r"(?:^|[_.-])(?:token|api_?key|password|passwd|secret)$", re.IGNORECASE)

SCHEMA_COMMENT = "# yaml-language-server: $schema="
"""The start of the first line of a shipped recipe, with which editors check and complete it."""


@dataclass(frozen=True, slots=True)
class Reading:
    """A recipe as it was read. name: as the user wrote it. path: its file, absolute; None for a text. origin: dotted
    path → `line 5` or `command line`; absent paths are defaults. digest: of the effective recipe, see `digest_of`.
    notes: what a dialect dropped or changed, a sentence each. verb: the command that a foreign line asks for, "" for
    the command that read it. packages: packages that the command line allows to import. fork: the run folder whose
    newest checkpoint a new run starts from. replaces: whether existing files may be overwritten."""

    recipe: Recipe
    name: str
    path: Path | None
    origin: dict[str, str]
    digest: str
    notes: tuple[str, ...] = ()
    verb: str = ""
    fork: Path | None = None
    packages: tuple[str, ...] = ()
    replaces: bool = False

    def add_lines(self, problems: Iterable[Problem]) -> list[Problem]:
        """Adds the lines in the recipe file to problems of settings, and marks those of defaults."""
        return [
            problem._replace(line=problem.line or self._line(problem.where), is_default=self._is_default(problem.where))
            for problem in problems
        ]

    def _line(self, path: str) -> int | None:
        origin = self._origin_of(path)
        return int(origin.removeprefix("line ")) if re.fullmatch(r"line \d+", origin) else None

    def _is_default(self, path: str) -> bool:
        return path in by_path() and not self._origin_of(path)

    def _origin_of(self, path: str) -> str:
        """Where a setting, or one within it, was written; "" for a default."""
        inside = (
            origin for written, origin in self.origin.items() if written == path or written.startswith(f"{path}.")
        )
        return self.origin.get(path) or next(inside, "")


def read(source: str | Path, overrides: Sequence[str] = ()) -> Reading:
    """Reads a recipe file, or a shipped recipe by its name, and applies `key=value` overrides.

    Raises RecipeError with every problem, in the order of the file, the command line's last: E1001 unknown key, E1002
    type, E1003 contradictory values, E1004 not YAML, E1005 a repeated key, E1006 refused by the YAML rules, E1007 out
    of range, E1008 an override that cannot be applied, E1009 a secret, E1011 no such recipe.
    """
    path = _find(source)
    return _reading(yaml_rules.read_file(path, str(source)), str(source), path, overrides)


def read_text(text: str, name: str = "recipe", overrides: Sequence[str] = ()) -> Reading:
    """`read` for a recipe that is not a file. name: its name in messages."""
    return _reading(text, name, None, overrides)


def digest_of(recipe: Recipe) -> str:
    """SHA-256 of a recipe's canonical JSON (keys sorted, no spaces, UTF-8): equal for equal settings, however they are
    written."""
    tree = recipe.model_dump(mode="json", by_alias=True)
    text = json.dumps(tree, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def shipped_recipes() -> dict[str, Path]:
    """Recipes that ship with Mezzotint, by name, sorted: those of the package and of its folders of `compat`, and of
    the source tree it runs from."""
    recipes: dict[str, Path] = {}
    for folder in (_source_recipes(), ASSETS / "recipes", *sorted(ASSETS.parent.glob("compat/*/recipes"))):
        if folder is not None and folder.is_dir():
            recipes |= {path.stem: path for path in folder.glob("*.yaml")}
    return dict(sorted(recipes.items()))


def resolve_paths(reading: Reading) -> Recipe:
    """The recipe as `locate_all_paths` returns it, with sampling settings of the model where nobody wrote any
    (`with_model_defaults`), and prompt and folder of generated class images. Raises as `locate_all_paths`."""
    return _with_class_images(with_model_defaults(locate_all_paths(reading), reading))


def locate_all_paths(reading: Reading) -> Recipe:
    """The recipe with every path resolved by its field's mark (`settings.base.Located`).

    Paths that are not found stay as written, for the task to report; `candidate_paths` lists where they were looked
    for. Raises RecipeError E1007 for a path that becomes invalid, such as one in a current
    folder that is not UTF-8.
    """
    recipe = locate_paths(reading.recipe, reading.path.parent if reading.path else None)
    if problems := list(_unusable_texts(recipe)):
        raise RecipeError(reading.name, problems=reading.add_lines(problems))
    return recipe


def with_model_defaults(recipe: Recipe, reading: Reading) -> Recipe:
    """The recipe with the defaults of the model's folder for values that were not written: a distilled model is sampled
    in few steps without guidance."""
    if recipe.model.family not in registry.names(FAMILIES):
        return recipe
    model = recipe.model
    folder = model.config if model.config is not None and model.path.is_file() else model.config_source
    defaults = family_spec(model.family).model_defaults(folder)
    return with_values(recipe, {path: value for path, value in defaults.items() if not reading._origin_of(path)})


def _with_class_images(recipe: Recipe) -> Recipe:
    """The recipe with prompt and folder of generated class images; the folder's name depends on the prompt and the
    model."""
    data, model = recipe.data, recipe.model
    if not data.prior.num_class_images:
        return recipe
    prompt = data.prior.class_prompt or data.prior.derive_prompt(data.captions)
    identity = (model.family, str(model.path), str(model.config), str(model.vae), model.weights, prompt)
    digest = hashlib.sha256(repr(identity).encode("utf-8", "surrogatepass")).hexdigest()
    slug = "-".join(re.findall(r"[a-z0-9]+", prompt.lower()))[:40]
    is_remote = re.match(r"[A-Za-z][A-Za-z0-9+.-]+:/", str(data.cache.path))
    cache = CacheSettings().path if is_remote else data.cache.path
    folder = cache.expanduser().absolute() / "class-images" / "-".join(filter(None, (slug, digest[:8])))
    return with_values(recipe, {"data.prior.class_prompt": prompt, "data.prior.path": data.prior.path or folder})


def _unusable_texts(value: Any, where: str = "") -> Iterator[Problem]:
    """Paths that no file can have, and texts that a checkpoint could not record, E1007 each."""
    if isinstance(value, Section):
        for name, info in type(value).model_fields.items():
            yield from _unusable_texts(getattr(value, name), f"{where}.{info.alias or name}".removeprefix("."))
    elif isinstance(value, dict):
        for key, entry in value.items():
            yield from _unusable_texts(entry, f"{where}.{key}")
    elif isinstance(value, (tuple, list)):
        for entry in value:
            yield from _unusable_texts(entry, where)
    elif isinstance(value, (str, Path)) and (message := _why_unusable(value)):
        remedy = "write another path" if isinstance(value, Path) else "write it in UTF-8"
        yield Problem(where, message, remedy, "E1007")


def _why_unusable(value: str | Path) -> str:
    """ "" for a text that is UTF-8, and for a path that a file can have here."""
    try:
        str(value).encode()
        if isinstance(value, Path):
            path = value.expanduser()
            os.lstat(path.parent if "{" in path.name else path)
    except UnicodeEncodeError:
        return "is not UTF-8 text, which checkpoints and reports require"
    except ValueError:
        return "contains a NUL character, which file names cannot have"
    except RuntimeError:
        return "starts with ~ and names no home folder of this machine"
    except OSError as error:
        return "is too long for a path" if error.errno == errno.ENAMETOOLONG else ""
    return ""


def locate_paths(section: S, recipe_folder: Path | None) -> S:
    """A section with every path resolved by its field's mark. recipe_folder: that of the recipe's file, if it is
    one."""
    changes: dict[str, Any] = {}
    for name, info in type(section).model_fields.items():
        before = getattr(section, name)
        after = _with_path(before, shape_of(info.annotation, tuple(info.metadata)), recipe_folder)
        if after != before:
            changes[name] = after
    return section.model_copy(update=changes) if changes else section


def _with_path(value: Any, shape: Shape, recipe_folder: Path | None) -> Any:
    """A setting with its paths resolved."""
    if isinstance(value, Section):
        return locate_paths(value, recipe_folder)
    if isinstance(value, dict) and shape.is_map:
        return {key: _with_path(entry, shape.item(0), recipe_folder) for key, entry in value.items()}
    if isinstance(value, tuple) and get_origin(shape.base) is tuple:
        return tuple(_with_path(entry, shape.item(index), recipe_folder) for index, entry in enumerate(value))
    mark = next((mark for mark in shape.marks if isinstance(mark, Located)), None)
    match mark:
        case Located("found", shipped) if value is not None:
            return resolve_path(value, recipe_folder, shipped={None: None, "models": MODELS, "data": DATA}[shipped])
        case Located("found later") if value is not None:
            return _absolute(resolve_path(value, recipe_folder))
        case Located("absolute") if value is not None:
            return _absolute(value.expanduser())
        case Located("home") if str(value).startswith("~"):
            return type(value)(Path(value).expanduser())
    return value


def resolve_path(path: Path, recipe_folder: Path | None, *, shipped: Path | None = None) -> Path:
    """An existing path, absolute; a path that exists nowhere stays as written, with `~` expanded. shipped: a folder of
    shipped files, found by name. A name with a range in braces is looked up by its
    folder."""
    if "{" in path.name:
        return resolve_path(path.parent, recipe_folder) / path.name
    return next(
        (candidate for candidate in candidate_paths(path, recipe_folder, shipped=shipped) if candidate.exists()),
        path.expanduser(),
    )


def candidate_paths(path: Path, recipe_folder: Path | None, *, shipped: Path | None = None) -> tuple[Path, ...]:
    """Where a path of a recipe is looked for, in order: next to the recipe, in the current folder, among shipped
    files."""
    opened = path.expanduser()
    if opened.is_absolute():
        return (_absolute(opened),)
    roots = [root for root in (recipe_folder, Path.cwd()) if root is not None]
    named = [shipped / opened] if shipped is not None and len(opened.parts) == 1 else []
    candidates = [_absolute(Path(root, opened)) for root in roots] + named
    return tuple(dict.fromkeys(candidates))


def _absolute(path: Path) -> Path:
    """The absolute path without `..`; links in a path without `..` are not resolved."""
    return path.resolve() if ".." in path.parts else path.absolute()


def _reading(text: str, name: str, path: Path | None, overrides: Sequence[str]) -> Reading:
    document = yaml_rules.load(text, name)
    open_families(_values_of(document.tree, overrides, "model", "family"))
    open_formats(_values_of(document.tree, overrides, "data", "format"))
    applied = apply(document.tree, overrides)
    recipe, issues = check(applied.tree)
    problems = _secret_problems(text, document, applied.tree, applied.paths)
    hidden = {problem.where for problem in problems}
    problems += [*document.problems, *applied.problems]
    unusable = () if recipe is None else _unusable_texts(recipe)
    issues = (*issues, *(Issue(tuple(p.where.split(".")), *p[:4]) for p in unusable))
    for issue in issues:
        if issue.where not in hidden:
            problems.append(_problem(issue, document, applied.paths))
    if problems or recipe is None:
        raise RecipeError(name, problems=_truncate(_in_order(problems)))
    return Reading(recipe, name, path, _origin(document, applied.paths), digest_of(recipe))


def _values_of(tree: dict[str, Any], overrides: Sequence[str], section: str, key: str) -> Iterator[str]:
    """The values of a setting, such as `model.family`, in a recipe and its overrides."""
    written = tree.get(section)
    yield str(written.get(key, "")) if isinstance(written, dict) else ""
    yield from (word.partition("=")[2] for word in overrides if word.startswith(f"{section}.{key}="))


def _problem(issue: Issue, document: Document, typed: frozenset[str]) -> Problem:
    key_path = issue.key_path
    if issue.code == "E1003" and not _from_command_line(issue.where, typed):
        key_path = tuple(issue.where.split("."))
    line = None if _touches(issue, typed) else document.line_near(key_path)
    return Problem(issue.where, issue.message, issue.remedy, issue.code, line)


def _touches(issue: Issue, typed: frozenset[str]) -> bool:
    """Whether the command line set the invalid value; for a check of several settings, the one it is shown at."""
    return _from_command_line(issue.where if issue.code == "E1003" else dotted_path(issue.key_path), typed)


def _from_command_line(path: str, typed: frozenset[str]) -> bool:
    return any(path == setting or path.startswith(setting + ".") for setting in typed)


def _secret_problems(text: str, document: Document, tree: dict[str, Any], typed: frozenset[str]) -> list[Problem]:
    message = "looks like {}; recipes are copied and shared"
    remedy = "remove it, and keep it in the environment or the tool's own login"
    problems: dict[tuple[int | None, str], Problem] = {}
    for key_path, kind in _secrets_in(tree):
        where = dotted_path(key_path)
        line = None if _from_command_line(where, typed) else document.line_near(key_path)
        problems[line, where] = Problem(where, message.format(kind), remedy, "E1009", line)
    seen = {line for line, _ in problems}
    for line, kind in _secret_lines(text):
        if line not in seen:
            problems[line, "comment"] = Problem("text", message.format(kind), remedy, "E1009", line)
    return list(problems.values())


def _secret_in(text: str) -> str | None:
    """The kind of secret in a text ("an access token", "a URL with a password", "a signed URL"), or None.

    A text of exactly forty hexadecimal digits counts as a Weights & Biases key; within a path they are the name of a
    snapshot and allowed.
    """
    if _TOKEN.search(text):
        return "an access token"
    if _URL.search(text):
        return "a URL with a password"
    if _SIGNED.search(text):
        return "a signed URL"
    return "an access key" if _BARE_KEY.fullmatch(text.strip()) else None


def _secret_lines(text: str) -> Iterator[tuple[int, str]]:
    """(line, kind) of every line with a secret, comments included."""
    for number, line in enumerate(text.splitlines(), start=1):
        kind = _secret_in(line) if not _BARE_KEY.fullmatch(line.strip()) else None
        if kind is not None:
            yield number, kind


def _secrets_in(tree: Any, key_path: tuple[str | int, ...] = ()) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """(key_path, kind) of every value that is a secret, by its form or its key (`api_key`)."""
    if isinstance(tree, dict):
        for key, value in tree.items():
            yield from _secrets_in(value, (*key_path, str(key)))
    elif isinstance(tree, list):
        for index, value in enumerate(tree):
            yield from _secrets_in(value, (*key_path, index))
    elif isinstance(tree, str):
        kind = _secret_in(tree)
        if kind is None and key_path and tree and _SECRET_NAME.search(str(key_path[-1])):
            kind = "an access key"
        if kind is not None:
            yield key_path, kind


def _in_order(problems: list[Problem]) -> list[Problem]:
    """By line, the command line's last, without duplicates."""
    return sorted(dict.fromkeys(problems), key=lambda p: (p.line is None, p.line or 0))


def _truncate(problems: list[Problem]) -> list[Problem]:
    """Truncates the problems of a file that is no recipe at all."""
    if len(problems) <= _MAX_PROBLEMS:
        return problems
    rest = f"and {len(problems) - _MAX_PROBLEMS} more; this does not look like a Mezzotint recipe"
    last = problems[_MAX_PROBLEMS]
    return [*problems[:_MAX_PROBLEMS], Problem("…", rest, "`mezzotint ls` lists complete ones", last.code, last.line)]


def _origin(document: Document, typed: frozenset[str]) -> dict[str, str]:
    origin = {dotted_path(key_path): f"line {line}" for key_path, line in document.lines.items() if key_path}
    for path in typed:
        origin = {key: value for key, value in origin.items() if not key.startswith(path + ".")}
        origin[path] = COMMAND_LINE
    return origin


def _find(source: str | Path) -> Path:
    if message := _why_unusable(Path(source)):
        raise RecipeError(f"{str(source)[:80]} {message}; give a recipe file", code="E1011")
    path = Path(source).expanduser()
    if path.is_file():
        return path.absolute()
    if path.is_dir():
        hint = f"give a recipe file or a run folder; for a folder of images write data.path={source}"
        raise RecipeError(f"{source} is a folder, but not a run folder; {hint}", code="E1011")
    if message := outside.describe_file_kind(path):
        raise RecipeError(f"{source}: {message}; give a recipe file", code="E1011")
    shipped = shipped_recipes()
    name = path.name.removesuffix(".yaml").removesuffix(".yml")
    if len(path.parts) == 1:
        for shipped_name, file in shipped.items():
            if shipped_name.replace("-", "_") == name.replace("-", "_"):
                return file
    hint = did_you_mean(name, [*shipped, *_files_beside(path)], cutoff=0.5)
    if Path("runs", path, "recipe.yaml").is_file():
        hint = f"did you mean {Path('runs', path)}?"
    if path.suffix not in (".yaml", ".yml"):
        hint = hint or "`mezzotint ls` lists the shipped recipes"
        raise RecipeError(f"there is no recipe {source}; {hint}", code="E1011")
    location = " in the current folder" if len(path.parts) == 1 else ""
    hint = hint or "names without .yaml are shipped recipes; `mezzotint ls` lists them"
    raise RecipeError(f"there is no file {source}{location}; {hint}", code="E1011")


def _files_beside(path: Path) -> list[str]:
    try:
        return [str(file) for file in path.parent.glob("*.yaml")]
    except OSError:
        return []


def _source_recipes() -> Path | None:
    root = ASSETS.parents[2]
    return root / "recipes" if (root / "pyproject.toml").is_file() else None
