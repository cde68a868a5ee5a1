"""The page Draw: a picture from any checkpoint or model, its progress, and the line that draws it again; two models on
the same seeds beside each other. One process draws for the page, and keeps the models that it has opened.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from typing import Any, get_args

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from mezzotint.assets import MODELS
from mezzotint.board.answers import JsonAnswer, body_of
from mezzotint.board.pages import Pages, picture_answer
from mezzotint.board.reading import runs
from mezzotint.board.reading.places import OutOfPlace
from mezzotint.board.reading.tails import shown
from mezzotint.board.words import whole
from mezzotint.errors import RecipeError
from mezzotint.settings.sections.sample import SolverName

_MOST = 40
"""Jobs that are remembered."""

_ENDED = "The process that generates images has ended; try again."
_NUMBERS = {"steps": "--steps", "guidance": "--guidance"}


@dataclass(slots=True)
class DrawJob:
    """One line that is drawn. process: its number. files: names of pictures below the folders of the page."""

    words: list[str]
    process: int
    step: int = 0
    of: int = 0
    picture: str = ""
    sentences: list[str] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    done: bool = False
    error: str = ""

    def as_json(self) -> dict[str, Any]:
        """For the page."""
        return {
            "command": shlex.join(["mezzotint", "sample", *self.words]), "step": self.step, "of": self.of,
            "picture": self.picture, "said": [shown(text) for text in self.sentences[-4:]], "files": self.files,
            "done": self.done, "error": shown(self.error),
        }  # fmt: skip


@dataclass(eq=False)
class DrawPages:
    """The page Draw over the same places."""

    pages: Pages
    jobs: dict[int, DrawJob] = field(default_factory=dict)
    ready: bool = False
    _process: subprocess.Popen[str] | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def draw(self, request: Request) -> Response:
        """The page. Its process begins to be made ready with it."""
        if not self.pages.read_only:
            threading.Thread(target=self._begun, daemon=True).start()
        query = request.query_params
        return self.pages.html(
            "draw.html", here="draw", folder=str(self.pages.places.folders[0]), models=self._models(),
            solvers=get_args(SolverName),
            values={name: query.get(name, "") for name in ("a", "b", "prompt", "negative", "seed", "size", "steps",
                                                           "guidance", "solver", "adapter")},
        )  # fmt: skip

    async def begin(self, request: Request) -> Response:
        """Begins to draw what a form says: {a, b, prompt, …}; answers with the numbers of its lines."""
        value = await body_of(request)
        models = [str(value.get(word, "")).strip() for word in ("a", "b")]
        lines = [_line(self._model(model), value, self._adapters(value)) for model in models if model]
        if not lines:
            raise RecipeError("no model is named; choose a run, a checkpoint or a model", code="E1012")
        return JsonAnswer({"jobs": await run_in_threadpool(lambda: [self._ask(words) for words in lines])})

    def state(self, request: Request) -> Response:
        """How far lines have come."""
        numbers = [whole(text) for text in request.query_params.getlist("job")]
        jobs = {number: self.jobs[number].as_json() for number in numbers if number in self.jobs}
        return JsonAnswer({"ready": self.ready, "jobs": jobs})

    def picture(self, request: Request) -> Response:
        """A picture below a folder of the page."""
        return picture_answer(self.pages.places.path(request.query_params.get("file", "")), request)

    def close(self) -> None:
        """Lets the process go."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()

    # --- what is drawn from ---

    def _models(self) -> list[tuple[str, str]]:
        """(what a line says, in words) of what there is to draw from."""
        choices = [
            (path.name, "included with Mezzotint")
            for path in sorted(MODELS.iterdir())
            if any(path.rglob("*.safetensors"))
        ]
        for row in self.pages.rows()[:50]:
            stored = runs.checkpoints(row.path)
            if stored:
                choices.append((str(row.path), f"newest checkpoint of {row.name}"))
            choices += [(str(row.path / "checkpoints" / one.name), row.name) for one in stored if one.is_whole]
            choices += [
                (str(row.path / "exports" / one.name), f"export of {row.name}")
                for one in runs.exports(row.path)
                if not one.adapts
            ]
        return [(shown(word), shown(text)) for word, text in choices]

    def _model(self, word: str) -> str:
        """A model by a word of the form: one that ships, or what lies below the folders. Raises OutOfPlace."""
        if re.fullmatch(r"[\w.-]+", word) and os.path.isdir(MODELS / word):
            return word
        folder = self.pages.places.folders[0]
        path = folder / word
        if not os.path.exists(path) or self.pages.places.name_of(path) is None:
            raise OutOfPlace(word)
        return str(path)

    def _adapters(self, value: dict[str, Any]) -> list[str]:
        """`FILE:SCALE` of each adapter that a form names, one a line."""
        words = []
        for text in str(value.get("adapter", "")).splitlines():
            name, _, scale = text.strip().partition(":")
            if name:
                words.append(f"--adapter={self._model(name)}" + (f":{_plain(scale)}" if scale else ""))
        return words

    # --- the process ---

    def _begun(self) -> subprocess.Popen[str]:
        with self._lock:
            if self._process is None or self._process.poll() is not None:
                self.ready = False
                self._process = subprocess.Popen(
                    [sys.executable, "-P", "-m", "mezzotint.board.acting.drawer"],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    text=True,
                    encoding="utf-8",
                    cwd=self.pages.places.folders[0],
                    start_new_session=True,
                )
                threading.Thread(target=self._hear, args=(self._process,), daemon=True).start()
            return self._process

    def _ask(self, words: list[str]) -> int:
        process = self._begun()
        with self._lock:
            number = max(self.jobs, default=0) + 1
            self.jobs[number] = DrawJob(words, process.pid)
            while len(self.jobs) > _MOST:
                self.jobs.pop(next(iter(self.jobs)))
            assert process.stdin is not None
            try:
                process.stdin.write(json.dumps({"id": number, "words": words}) + "\n")
                process.stdin.flush()
            except OSError:
                self.jobs[number].error, self.jobs[number].done = _ENDED, True
        return number

    def _hear(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            answer = json.loads(line)
            self.ready = self.ready or "ready" in answer
            job = self.jobs.get(answer.get("id", -1))
            if job is None:
                continue
            job.step, job.of = answer.get("step", job.step), answer.get("of", job.of)
            job.picture = answer.get("picture") or job.picture
            job.sentences += [answer["said"]] if "said" in answer else []
            if answer.get("done"):
                job.error = answer.get("error", "")
                job.files = [] if job.error else self._files_of(job)
                job.done = True
        process.wait()  # it was killed, or ran out of memory
        for job in list(self.jobs.values()):
            if not job.done and job.process == process.pid:
                job.error, job.done = job.error or _ENDED, True

    def _files_of(self, job: DrawJob) -> list[str]:
        """The pictures that a line has written, by the sentence at its end."""
        place = re.search(r" in (.+); contact sheet: ", job.sentences[-1]) if job.sentences else None
        folder = self.pages.places.folders[0] / place[1] if place is not None else None
        files = sorted(folder.iterdir()) if folder is not None and folder.is_dir() else []
        names = [self.pages.places.name_of(path) for path in files if not path.name.startswith("contact")]
        return [name for name in names if name is not None]


def _line(model: str, value: dict[str, Any], adapters: list[str]) -> list[str]:
    """The words behind `mezzotint sample` that a form amounts to."""
    words = [model, f"--prompt={value.get('prompt', '')}"]
    if value.get("negative"):
        words.append(f"--negative={value['negative']}")
    for name, switch in _NUMBERS.items():
        if str(value.get(name, "")).strip():
            words.append(f"{switch}={_plain(str(value[name]))}")
    for name in ("seed", "size", "solver"):
        if str(value.get(name, "")).strip():
            words.append(f"--{name}={str(value[name]).strip()}")
    return [*words, *adapters]


def _plain(text: str) -> str:
    """A number with a point; 7,5 is 7.5."""
    return re.sub(r"^\s*([+-]?\d+),(\d+)\s*$", r"\1.\2", text).strip()
