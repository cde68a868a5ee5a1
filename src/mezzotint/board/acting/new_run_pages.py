"""The page New run: a few choices on one screen, a recipe proposed from them with a reason for each setting, its
memory, and what the doctor finds in the images. The recipe is started, queued and saved as on the page Recipe.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from mezzotint import outside
from mezzotint.board.acting.recipe_pages import REPORTED, BaseRecipe, as_yaml, list_overrides
from mezzotint.board.answers import JsonAnswer, read_body
from mezzotint.board.formatting import parse_whole
from mezzotint.board.pages import Pages, image_answer
from mezzotint.board.reading import candidates
from mezzotint.board.reading.candidates import FoundModel
from mezzotint.board.reading.root_folders import OutsideFolders, inside
from mezzotint.board.reading.tails import make_printable
from mezzotint.errors import RecipeError
from mezzotint.settings.counting import format_bytes
from mezzotint.settings.reading.read import shipped_recipes
from mezzotint.tasks.proposing.choices import GOALS, RunChoices, setting_text
from mezzotint.tasks.proposing.proposing import Message, Proposal, propose

CARDS = (8, 12, 16, 24, 32, 48, 80)
"""Memory of cards to choose from, GB."""

_SECONDS = {"check": 300, "doctor": 180}
_WAIT_SECONDS, _MOST_COMMANDS = 0.5, 20
_MOST_EXAMINED = 2000
"""Images that the doctor examines at most."""
_WORST = 3
_EDITABLE = ("run.steps", "optim.lr", "model.adapter.rank", "data.batch_size", "data.resolution", "sample.prompts")
_FIELDS = (
    ("run.name", "name"), ("run.folder", "name"), ("run.device", "memory"), ("data.captions", "trigger"),
    ("data.conditions", "before"), ("data", "data"), ("model", "model"), ("E12", "data"), ("E14", "model"),
    ("E175", "memory"), ("E15", "name"),
)  # fmt: skip
"""By the start of a setting or of an error code, the field at which a problem is shown."""


@dataclass(eq=False)
class BackgroundCommand:
    """A command that runs in the background. result: None until it ends; has_timed_out: whether it was ended."""

    line: tuple[str, ...]
    result: subprocess.CompletedProcess[bytes] | None = None
    has_timed_out: bool = False
    is_wanted: bool = True
    ended: threading.Event = field(default_factory=threading.Event)
    _process: subprocess.Popen[bytes] | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def run(self, folder: Path) -> None:
        """Runs it to its end, unless nobody wants it any more."""
        with self._lock:
            if self.is_wanted:
                self._process = subprocess.Popen(
                    [sys.executable, "-P", "-m", "mezzotint", *self.line], stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=folder,
                )  # fmt: skip
        if self._process is not None:
            try:
                out, errors = self._process.communicate(timeout=_SECONDS[self.line[0]])
                self.result = subprocess.CompletedProcess(self.line, self._process.returncode, out, errors)
            except subprocess.TimeoutExpired:
                self.has_timed_out = True
                self._process.kill()
                self._process.communicate()
        self.ended.set()

    def end(self) -> None:
        """Ends it, or keeps it from starting."""
        with self._lock:
            self.is_wanted = False
            if self._process is not None:
                self._process.kill()


@dataclass(eq=False)
class BackgroundCommands:
    """Commands for the pages in browsers, one at a time: of each page the newest `check` and `doctor`."""

    _commands: dict[tuple[str, str], BackgroundCommand] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _turn: threading.Lock = field(default_factory=threading.Lock)

    def ask(self, page: str, line: Sequence[str], folder: Path) -> BackgroundCommand:
        """The command `mezzotint LINE`, started by the first question for it, after a short wait for its end."""
        key = (page, line[0])
        with self._lock:
            command = self._commands.get(key)
            if command is None or command.line != tuple(line):
                if command is not None:
                    command.end()
                command = self._commands[key] = BackgroundCommand(tuple(line))
                threading.Thread(target=self._run, args=(command, folder), daemon=True).start()
            while len(self._commands) > _MOST_COMMANDS:
                self._commands.pop(next(iter(self._commands))).end()
        command.ended.wait(_WAIT_SECONDS)
        return command

    def _run(self, command: BackgroundCommand, folder: Path) -> None:
        with self._turn:
            command.run(folder)

    def close(self) -> None:
        """Ends what runs."""
        with self._lock:
            for command in self._commands.values():
                command.end()


@dataclass(eq=False)
class NewRunPages:
    """Handlers of the page New run."""

    pages: Pages
    commands: BackgroundCommands = field(default_factory=BackgroundCommands)
    _models: Mapping[str, FoundModel] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.pages.at_close.append(self.commands.close)

    def new(self, request: Request) -> Response:
        """The page. Its lists are filled in by the script, which the search for models must not delay."""
        folders = [make_printable(str(folder)) for folder in self.pages.roots.folders]
        return self.pages.html("new.html", current_page="new", goals=GOALS, cards=CARDS, folders=folders)

    def data(self, request: Request) -> Response:
        """The folders of images: {rows, is_cut}."""
        rows, is_cut = candidates.find_data(self.pages.roots)
        listed = [
            {"name": name, "label": label, "images": one.images, "clips": one.clips, "captions": one.captions}
            for name, label, one in rows
        ]
        return JsonAnswer({"rows": listed, "is_cut": is_cut})

    def models(self, request: Request) -> Response:
        """The models and the graphics cards: {rows, cards, is_cut}."""
        rows, is_cut = candidates.find_models(self.pages.roots)
        self._models = {row.name: row for row in rows}
        listed = [
            {"name": one.name, "label": one.label, "about": one.about, "usable": one.facts is not None} for one in rows
        ]
        return JsonAnswer({"rows": listed, "is_cut": is_cut, "cards": candidates.find_cards()})

    def thumbnail(self, request: Request) -> Response:
        """A small copy of an image in a folder of `data`."""
        query = request.query_params
        folder = candidates.data_path(self.pages.roots, query.get("folder", ""))
        path = inside(folder, query.get("file", ""))
        if not folder.is_relative_to(candidates.SHIPPED_FOLDER) and self.pages.roots.name_of(path) is None:
            raise OutsideFolders(query.get("file", ""))
        return image_answer(path, request)

    async def propose(self, request: Request) -> Response:
        """The proposal for choices, with messages: see `_propose`."""
        value = await read_body(request)
        return JsonAnswer(await run_in_threadpool(self._propose, value))

    def _propose(self, value: Mapping[str, Any]) -> dict[str, Any]:
        """{base, rows, messages, changes, name, data, files, query, command, yaml} for the fields of the form, of which
        `changed` has the rows that were changed by hand."""
        choices, messages, folder = self._read_choices(value)
        proposal = propose(choices)
        messages = [*messages, *proposal.messages]
        edited = _edited(value, proposal)
        changes = proposal.changes | edited
        answer: dict[str, Any] = {
            "base": "", "rows": [], "changes": changes, "name": changes.get("run.name", choices.name),
            "data": {} if folder is None else {
                "images": folder.images, "clips": folder.clips, "captions": folder.captions,
                "files": [make_printable(file) for file in folder.files if file == make_printable(file)],
            },
        }  # fmt: skip
        problems: dict[str, str] = {}
        if proposal.base:
            answer["base"] = proposal.base
            overrides = list_overrides({"changes": changes})
            answer["query"] = urlencode([("base", proposal.base), *(("set", f"{p}={t}") for p, t in changes.items())])
            try:
                answer["yaml"] = as_yaml(BaseRecipe(proposal.base).read(overrides))
            except RecipeError as error:
                listed = [(one.where, f"{one.message}; {one.remedy}" if one.remedy else one.message)
                          for one in error.problems] or [("", error.message)]  # fmt: skip
                problems = {where: make_printable(text) for where, text in listed}
        shown = {row.path for row in proposal.rows}
        messages += [Message(_field_of(where), "wrong", text) for where, text in problems.items() if where not in shown]
        answer["messages"] = [
            {"field": one.field, "kind": one.kind, "text": make_printable(one.text)} for one in messages
        ]
        answer["rows"] = [
            {
                "label": row.label, "path": row.path, "reason": make_printable(row.reason),
                "value": edited.get(row.path) or _shown(row.value), "editable": row.path in _EDITABLE,
                "proposed": _shown(row.value).replace("\n", ", "), "edited": row.path in edited,
                "wrong": problems.get(row.path, ""),
            }
            for row in proposal.rows
        ]  # fmt: skip
        return answer

    def _read_choices(
        self, value: Mapping[str, Any]
    ) -> tuple[RunChoices, list[Message], candidates.ImageCounts | None]:
        """The choices of a form, with messages about what is no longer there."""
        roots, messages = self.pages.roots, list[Message]()
        goal = next((one for one in GOALS if one == value.get("goal")), None)
        if goal is None:
            raise RecipeError(f"there is no goal {make_printable(str(value.get('goal')))!r}", code="E1012")
        trigger = " ".join(str(value.get("trigger", "")).split())[:200]
        card, name = parse_whole(str(value.get("memory", ""))), str(value.get("name", "")).strip()
        taken = frozenset(run.rpartition("/")[2] for run in roots.runs())
        changed = value.get("changed")
        steps = parse_whole(str(changed.get("run.steps", ""))) if isinstance(changed, dict) else 0
        choices = RunChoices(
            goal=goal, trigger=trigger, card=card * 10**9 or None, name=name, taken=taken, steps=steps or None
        )
        folder = None
        try:
            if value.get("model"):
                name = str(value["model"])
                one = self._models.get(name) or candidates.read_model(roots, name)
                if one.facts is None:
                    messages.append(Message("model", "wrong", f"{one.label}: {one.about}"))
                choices = replace(choices, model=one.facts)
        except OutsideFolders:
            messages.append(Message("model", "wrong", "This model is no longer there."))
        try:
            if value.get("data"):
                facts, folder = candidates.read_data(roots, str(value["data"]), trigger)
                choices = replace(choices, data=facts)
            if value.get("before") and goal == "edit":
                before, images = candidates.read_data(roots, str(value["before"]), "")
                first = [os.path.join(before.path, file) for file in images.files[:1]]
                choices = replace(choices, before=before.path, before_image="".join(first))
        except OutsideFolders:
            messages.append(Message("data", "wrong", "This folder is no longer there."))
        return choices, messages, folder

    async def memory(self, request: Request) -> Response:
        """What `mezzotint check` computes for a proposal: {page, base, changes, memory}. Returns {sentence, rows,
        changes, messages}, or {is_pending} until it has ended."""
        value = await read_body(request)
        return JsonAnswer(await run_in_threadpool(self._memory, value))

    def _memory(self, value: Mapping[str, Any]) -> dict[str, Any]:
        card = parse_whole(str(value.get("memory", "")))
        line = ["check", *self._arguments(value), "--json", *([f"--fit={card}GB"] if card else [])]
        output = self._ask(value, line)
        if output is None:
            return {"is_pending": True}
        document, problems = output
        answer: dict[str, Any] = {"sentence": "", "rows": [], "changes": {}, "messages": problems}
        if document.get("fit"):
            answer |= _fitting_of(document["fit"])
        elif document.get("memory"):
            peak = format_bytes(document["memory"]["peak"])
            fits = "" if document.get("fits") is not False else ", more than is free"
            answer["sentence"] = f"{peak} of this computer’s memory{fits} (computed, not measured)"
        return answer

    async def doctor(self, request: Request) -> Response:
        """The worst findings of `mezzotint doctor` in the data of a proposal: {page, base, changes, samples}. Returns
        {findings, more, about, messages}, or {is_pending} until it has ended."""
        value = await read_body(request)
        return JsonAnswer(await run_in_threadpool(self._doctor, value))

    def _doctor(self, value: Mapping[str, Any]) -> dict[str, Any]:
        samples = parse_whole(str(value.get("samples", "")))
        most = [f"data.max_samples={_MOST_EXAMINED}"] if samples > _MOST_EXAMINED else []
        output = self._ask(value, ["doctor", *self._arguments(value), *most, "--json"])
        if output is None:
            return {"is_pending": True}
        document, problems = output
        findings = [one for one in document.get("findings", []) if one["status"] in ("mend", "look")]
        worst = [
            {name: make_printable(str(one[name])) for name in ("status", "sentence", "advice")} for one in findings
        ]
        about = f"{_MOST_EXAMINED:,} of the {samples:,} images were examined." if most else ""
        return {"findings": worst[:_WORST], "more": max(0, len(worst) - _WORST), "about": about, "messages": problems}

    def _arguments(self, value: Mapping[str, Any]) -> list[str]:
        base = str(value.get("base", ""))
        if base not in shipped_recipes():
            raise OutsideFolders(base)
        return [base, *list_overrides(value)]

    def _ask(self, value: Mapping[str, Any], line: list[str]) -> tuple[dict[str, Any], list[dict[str, str]]] | None:
        """The JSON document that a command prints, and its problems as messages; None until it has ended."""
        command = self.commands.ask(str(value.get("page", ""))[:40], line, self.pages.roots.folders[0])
        if command.has_timed_out:
            text = f"`mezzotint {line[0]}` was ended after {_SECONDS[line[0]]} s."
            return {}, [{"field": "proposal", "kind": "hint", "text": text}]
        done = command.result
        if done is None:
            return None
        document: dict[str, Any] = {}
        with suppress(ValueError):  # it ended with an error before there was a result
            document = outside.parse_json(done.stdout.decode("utf-8", "replace")) or {}
        listed = [(one["code"], one["message"]) for one in document.get("problems", [])]
        if done.returncode and not document:
            errors = make_printable(done.stderr.decode("utf-8", "replace"))
            listed = REPORTED.findall(errors) or [("", errors.strip()[-500:] or "the command failed")]
        return document, [
            {"field": _field_of(_setting_in(text), code), "kind": "wrong", "text": make_printable(f"{code} {text}")}
            for code, text in listed
        ]


def _fitting_of(fit: Mapping[str, Any]) -> dict[str, Any]:
    """What `check --fit` found, for the page."""
    plan, changes = fit["plan"], {path: setting_text(value) for path, value in fit["settings"].items()}
    host = f", and {format_bytes(plan['held_on_host'])} of the computer’s" if plan["held_on_host"] else ""
    rows = [
        {"text": " ".join(f"{path}={setting_text(text)}" for path, text in reason["settings"].items()),
         "reason": make_printable(str(reason["text"]))}
        for reason in fit["reasons"]
    ]  # fmt: skip
    before = format_bytes(fit["before"]["needed"])
    sentence = f"{format_bytes(plan['needed'])} of the card’s memory{host} (computed, not measured)"
    return {"sentence": sentence, "before": before if changes else "", "rows": rows, "changes": changes}


def _edited(value: Mapping[str, Any], proposal: Proposal) -> dict[str, str]:
    """The rows that were changed by hand, as text of a form."""
    changed, shown = value.get("changed"), {row.path for row in proposal.rows}
    if not isinstance(changed, dict):
        return {}
    return {path: str(text) for path, text in changed.items() if path in _EDITABLE and path in shown}


def _shown(value: Any) -> str:
    """The text of a value in a field: a list of texts has one line for each."""
    return "\n".join(map(str, value)) if isinstance(value, list) else setting_text(value)


def _setting_in(text: str) -> str:
    """The setting that a message names, or ""."""
    match = re.search(r"\b[a-z_]+(\.[a-z_0-9]+)+", text)
    return match[0] if match else ""


def _field_of(where: str, code: str = "") -> Any:
    """The field at which a problem is shown."""
    return next((field for start, field in _FIELDS if where.startswith(start) or code.startswith(start)), "proposal")
