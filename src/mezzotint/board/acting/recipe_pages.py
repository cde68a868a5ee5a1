"""The page Recipe: a form of all settings, with the equivalent YAML and command, and each problem at its field. It
checks, saves and starts a recipe with the commands that it shows.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from mezzotint import durable, registry
from mezzotint.board.acting.fields import field_of, word_of
from mezzotint.board.answers import JsonAnswer, read_body
from mezzotint.board.pages import Pages
from mezzotint.board.reading.root_folders import OutsideFolders, inside
from mezzotint.board.reading.tails import make_printable
from mezzotint.errors import OutOfMemory, Problem, RecipeError
from mezzotint.runtimes.shared.launch import Launch
from mezzotint.settings.reading.foreign_names import meaning_of
from mezzotint.settings.reading.nearest import nearest, search
from mezzotint.settings.reading.paths import by_path, sections, settings
from mezzotint.settings.reading.read import Reading, read, read_text, shipped_recipes
from mezzotint.settings.reading.writing import flatten, without_defaults
from mezzotint.settings.sections.run import RunSettings
from mezzotint.tasks.reading import foreign, stamps
from mezzotint.tasks.reading.continuing import folder_of, is_run, with_run
from mezzotint.tasks.reading.missing import find_missing_data
from mezzotint.tasks.translate import text as translated_text

_CHECK_SECONDS = 600
_FILE, _YAML, _MOST_FILES = "file:", (".yaml", ".yml"), 100
_MOST_MATCHES, _LONGEST = 4, 100
"""Settings that a search names first, and its longest text."""
_NAME = 200
"""Longest file name, in bytes; file systems allow 255."""

REPORTED = re.compile(r"\b(E\d{4})\]?:? +(.+)")
"""A problem in the output of a check: its code and its message."""


@dataclass(frozen=True, slots=True)
class BaseRecipe:
    """The recipe that a form starts from: a shipped one, a file, or an imported text. word: its argument in a
    command."""

    word: str
    path: Path | None = None
    text: str | None = None

    def read(self, overrides: list[str]) -> Reading:
        """The recipe with `key=value` overrides applied. Raises RecipeError with all problems."""
        if self.text is not None:
            return read_text(self.text, "recipe", overrides)
        return read(self.word if self.path is None else self.path, overrides)


@dataclass(eq=False)
class RecipePages:
    """Handlers of the page Recipe."""

    pages: Pages

    def recipe(self, request: Request) -> Response:
        """The form. `base` names the recipe it starts from, `set` the changes."""
        name = request.query_params.get("base", "mini")
        changed = dict(part.split("=", 1) for part in request.query_params.getlist("set") if "=" in part)
        reading = self._base({"base": name}).read([])
        dumped = dict(flatten(reading.recipe.model_dump(mode="json", by_alias=True)))
        groups: dict[str, list[dict[str, Any]]] = {}
        for setting in settings():
            if setting.path == "schema":
                continue
            groups.setdefault(setting.path.rpartition(".")[0], []).append(field_of(setting, dumped))
        about = sections()
        rows = [(path, about[path], rows) for path, rows in groups.items()]
        bases = [*shipped_recipes(), *self._files(), *(f"run:{row.name}" for row in self.pages.rows()[:100])]
        bases += [] if name in bases else [name]
        labels = [(one, self._label(one)) for one in bases]
        return self.pages.html(
            "recipe.html", current_page="recipe", base=name, bases=labels, groups=rows, changed=changed,
            dialects=sorted(registry.names("dialects", skip_unimported=True)), folder=str(self.pages.roots.folders[0]),
        )  # fmt: skip

    def find(self, request: Request) -> Response:
        """The settings that the words `q` mean, the best first, also by names of other trainers: [{path, why}]."""
        words = request.query_params.get("q", "").strip()[:_LONGEST]
        return JsonAnswer([{"path": path, "why": make_printable(why)} for path, why in _find_settings(words)])

    async def live(self, request: Request) -> Response:
        """The YAML, command and problems of a form: {base | text, changes}."""
        value = await read_body(request)
        return JsonAnswer(await run_in_threadpool(self._live, value))

    def _live(self, value: Mapping[str, Any]) -> dict[str, Any]:
        base, overrides = self._base(value), list_overrides(value)
        line = ["mezzotint", "train", base.word, *overrides]
        try:
            reading = base.read(overrides)
        except RecipeError as error:
            problems = [_problem_json(one) for one in error.problems] or [
                _problem_json(Problem("", error.message, code=error.code))
            ]
            return {"problems": problems, "command": shlex.join(line), "yaml": ""}
        missing = find_missing_data(reading, self.pages.roots.folders[0])
        return {"problems": list(map(_problem_json, missing)), "command": shlex.join(line), "yaml": as_yaml(reading)}

    async def check(self, request: Request) -> Response:
        """The result of `mezzotint check` for a form: {status, verdict, problems, text, command}."""
        value = await read_body(request)
        base = self._base(value)
        dry = ["--dry"] if value.get("dry") is True else []
        line = ["check", *self._base_arguments(base), *list_overrides(value), *dry]
        output = await run_in_threadpool(_run_check, line, self.pages.roots.folders[0])
        return JsonAnswer(output | {"command": shlex.join(["mezzotint", *line])})

    async def save(self, request: Request) -> Response:
        """Writes a form to a new recipe file in the first folder of the page: {…, file}."""
        value = await read_body(request)
        path = self._new_file(str(value.get("file", "")))
        reading = self._base(value).read(list_overrides(value))
        await run_in_threadpool(durable.write_new, path, as_yaml(reading))
        command, name = shlex.join(["mezzotint", "train", str(path)]), self.pages.roots.name_of(path)
        return JsonAnswer({"message": f"Saved as {path}", "command": command, "base": f"{_FILE}{name}"})

    async def start(self, request: Request) -> Response:
        """Starts a form as a run, in a separate process: {run, message}, the name of the run and a sentence."""
        value = await read_body(request)
        return JsonAnswer(await run_in_threadpool(self._start, value))

    def _start(self, value: Mapping[str, Any]) -> dict[str, Any]:
        arguments, run, name = self._run_of(value)
        return {"message": self.pages.started.start(arguments, run, self.pages.roots.folders[0]), "run": name}

    async def enqueue(self, request: Request) -> Response:
        """Adds a form to the queue: {message, command}."""
        value = await read_body(request)
        return JsonAnswer(await run_in_threadpool(self._enqueue, value))

    def _enqueue(self, value: Mapping[str, Any]) -> dict[str, Any]:
        arguments, *_ = self._run_of(value)
        line = ["queue", "add", f"--queue={self.pages.queue.folder}", *arguments[1:]]
        done = run_command(line, self.pages.roots.folders[0])
        output = make_printable((done.stderr if done.returncode else done.stdout).decode("utf-8", "replace")).strip()
        if done.returncode:
            raise RecipeError(output.removeprefix("error").strip(), code="E1947")
        return {"message": output.partition("\n")[0], "command": shlex.join(["mezzotint", *line])}

    def _run_of(self, value: Mapping[str, Any]) -> tuple[list[str], Path, str]:
        """The arguments that train a form, with its run folder and the name of the run. Raises RecipeError E1949 for a
        form that is not saved, or would write outside of the folders of the page."""
        base, overrides = self._base(value), list_overrides(value)
        named = self._base_arguments(base)
        folder = self.pages.roots.folders[0]
        self._require_inside(base, base.read(overrides).recipe.run)
        reading = with_run(base.read(overrides))
        settings = reading.recipe.run
        if settings.folder is None and any(row.path.parent == folder for row in self.pages.rows()):
            overrides.append(f"run.folder={settings.name}")  # next to the runs that are directly in the page's folder
            reading = with_run(base.read(overrides))
        run = folder_of(reading, reading.recipe, folder)
        if stamps.is_open(settings.folder or Path(settings.name)):
            overrides.append(f"run.folder={run}")  # the process would resolve the stamp again
        run = Path(os.path.realpath(run))
        name = self.pages.roots.name_of(run)
        if name is None:
            raise RecipeError(
                f"{make_printable(str(run))}: the page starts only runs that write to "
                f"{' or '.join(map(str, self.pages.roots.folders))}; start this one in a terminal",
                code="E1949",
            )
        return ["train", *named, *overrides], run, name

    async def translate(self, request: Request) -> Response:
        """Translates another trainer's command to a recipe, with notes: {dialect, line}."""
        value = await read_body(request)
        name = str(value.get("dialect", ""))
        try:
            arguments = shlex.split(str(value.get("line", "")).replace("\\\n", " "))
        except ValueError as error:
            raise RecipeError(f"the command cannot be split into arguments: {error}", code="E1012") from None
        launched = foreign.launch_facts(Launch.read())
        translated = await run_in_threadpool(foreign.translate, name, arguments, launched)
        text = translated_text(translated, name)
        command = shlex.join(["mezzotint", "train", "--as", name, "--", *arguments])
        return JsonAnswer(
            {
                "yaml": make_printable(text),
                "notes": [make_printable(str(note)) for note in translated.notes],
                "command": command,
            }
        )

    # --- recipes and files of a form ---

    def _base(self, value: Mapping[str, Any]) -> BaseRecipe:
        """The recipe that a form starts from. Raises OutsideFolders unless it is a shipped recipe, a run's recipe, or a
        .yaml file in the folders."""
        text = value.get("text")
        if isinstance(text, str) and text:
            return BaseRecipe("recipe.yaml", text=text)
        name = str(value.get("base", ""))
        if name.startswith("run:"):
            path = inside(self.pages.roots.run(name.removeprefix("run:")), "recipe.yaml")
            return BaseRecipe(str(path), path=path)
        if name.startswith(_FILE):
            path = self.pages.roots.path(name.removeprefix(_FILE))
            if path.suffix not in _YAML or not path.is_file():
                raise OutsideFolders(name)
            return BaseRecipe(str(path), path=path)
        if name not in shipped_recipes():
            raise OutsideFolders(name)
        return BaseRecipe(name)

    def _label(self, name: str) -> str:
        """The label of a base recipe in the list."""
        kind, _, path = name.partition(":")
        if not path:
            return name
        label = make_printable(self.pages.roots.label(path))
        return f"run {label}" if kind == "run" else label

    def _files(self) -> list[str]:
        """The .yaml files directly in the folders of the page."""
        roots = self.pages.roots
        files = [file for folder in roots.folders for file in sorted(folder.glob("*.y*ml")) if file.suffix in _YAML]
        names = [roots.name_of(file) for file in files[:_MOST_FILES] if file.is_file()]
        return [f"{_FILE}{name}" for name in names if name is not None]

    def _base_arguments(self, base: BaseRecipe) -> list[str]:
        """The argument of a base recipe in a command. Raises RecipeError E1949 for a text that is not saved yet."""
        if base.text is not None:
            raise RecipeError("this recipe is not saved yet; save it, then load the file", code="E1949")
        return [base.word]

    def _require_inside(self, base: BaseRecipe, run: RunSettings) -> None:
        """Raises RecipeError E1949 for a run that would write outside of the folders of the page. A run's own
        recipe.yaml resumes in its folder, whatever its run.folder."""
        roots = self.pages.roots
        resumes = base.path is not None and base.path.name == "recipe.yaml" and is_run(base.path.parent)
        for name, path in (
            ("run.folder", None if resumes else run.folder),
            ("run.export.folder", run.export.folder),
            ("run.export.single_file_folder", run.export.single_file_folder),
            ("run.profile.folder", run.profile.folder),
        ):
            if path is not None and roots.name_of(roots.folders[0] / os.path.expanduser(path)) is None:
                raise RecipeError(
                    f"{name}={make_printable(str(path))}: the page starts only runs that write to "
                    f"{' or '.join(map(str, roots.folders))}; choose a folder there, or start the run in a terminal",
                    code="E1949",
                )

    def _new_file(self, name: str) -> Path:
        """The path of a new recipe file in the first folder of the page. Raises RecipeError E1949."""
        folder, _, last = name.rpartition("/")
        try:
            parent = inside(self.pages.roots.folders[0], folder or ".")
        except OutsideFolders:
            parent = None
        is_name = re.fullmatch(r"\w[\w .-]*\.ya?ml", last) and len(last.encode()) <= _NAME
        is_queue = str(parent) == os.path.realpath(
            self.pages.queue.folder
        )  # a recipe there would be trained, wherever it writes
        if parent is None or not parent.is_dir() or not is_name or is_queue:
            raise RecipeError(
                f"{make_printable(name)!r}: give the name of a new .yaml file in a folder of "
                f"{self.pages.roots.folders[0]}",
                code="E1949",
            )
        return parent / last


def _find_settings(words: str) -> list[tuple[str, str]]:
    """(path, why) of the settings that a phrase means."""
    name = re.sub(r"[\s-]+", "_", words.lstrip("-"))
    if len(name) < 3:
        return []
    match = meaning_of(name)
    meant: dict[str, str] = {}
    if match is not None and match.path:
        meant[match.path] = f"{name} of {match.origin}" + f": {match.note}" * bool(match.note)
    near = nearest(name)
    for path in [*([near] if near else []), *search(words)]:
        meant.setdefault(path if path in by_path() else f"{path}.kind", "")
    return [(path, why) for path, why in meant.items() if path in by_path()][:_MOST_MATCHES]


def list_overrides(value: Mapping[str, Any]) -> list[str]:
    """The changes of a form as `key=value`. Raises RecipeError E1001 for a key that would be an option of a command."""
    changes = value.get("changes")
    changes = changes if isinstance(changes, dict) else {}
    option = next((path for path in changes if path.startswith("-")), None)
    if option is not None:
        raise RecipeError(f"{make_printable(option)} is not a setting", code="E1001")
    return [
        word_of(by_path()[path], str(text)) if path in by_path() else f"{path}={text}" for path, text in changes.items()
    ]


def _problem_json(problem: Problem) -> dict[str, Any]:
    message = f"{problem.message}; {problem.remedy}" if problem.remedy else problem.message
    return {
        "where": make_printable(problem.where),
        "what": make_printable(message),
        "code": problem.code,
        "line": problem.line,
    }


def as_yaml(reading: Reading) -> str:
    """The recipe as YAML, without defaults."""
    return yaml.safe_dump(without_defaults(reading.recipe), sort_keys=False, allow_unicode=True, width=100)


def run_command(line: list[str], folder: Path) -> subprocess.CompletedProcess[bytes]:
    """Runs a command to its end in a folder. Raises subprocess.TimeoutExpired."""
    return subprocess.run(
        [sys.executable, "-P", "-m", "mezzotint", *line], stdin=subprocess.DEVNULL, capture_output=True,
        check=False, timeout=_CHECK_SECONDS, cwd=folder,
    )  # fmt: skip


def _run_check(line: list[str], folder: Path) -> dict[str, Any]:
    """Runs a check: its exit status, verdict, problems and output."""
    try:
        done = run_command(line, folder)
    except subprocess.TimeoutExpired:
        message = f"The check was stopped after {_CHECK_SECONDS} s."
        return {"status": -1, "verdict": message, "problems": [], "text": ""}
    report, errors = (make_printable(part.decode("utf-8", "replace")) for part in (done.stdout, done.stderr))
    problems = [_parse_problem(*match.groups()) for match in REPORTED.finditer(errors)] if done.returncode else []
    return {
        "status": done.returncode, "verdict": _verdict(done.returncode, report), "problems": problems,
        "text": (report + errors)[:100_000],
    }  # fmt: skip


def _verdict(status: int, report: str) -> str:
    """The result of a check in one sentence."""
    if status not in (0, OutOfMemory.exit_status):
        return "This recipe cannot run."
    lines = re.search(r"^(?:fits|does not fit)\b.*(?:\n +.*)*", report, re.MULTILINE | re.IGNORECASE)
    verdict = re.sub(r"\n +", " ", lines[0]) if lines else "can run" if status == 0 else "does not fit into memory"
    return f"This recipe {verdict}."


def _parse_problem(code: str, message: str) -> dict[str, Any]:
    """A problem in the output of a check, with the setting that it names."""
    where = next((word for word in re.findall(r"[a-z_0-9]+(?:\.[a-z_0-9]+)+", message) if word in by_path()), "")
    return {"where": where, "what": message, "code": code, "line": None}
