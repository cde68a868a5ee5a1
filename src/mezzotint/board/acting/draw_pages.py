"""The page Generate: images from any checkpoint or model, their progress, and the command that reproduces them; two
models side by side with the same seeds. One process generates for the page and keeps its models loaded.
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
from mezzotint.board.answers import JsonAnswer, read_body
from mezzotint.board.formatting import parse_whole
from mezzotint.board.pages import Pages, image_answer
from mezzotint.board.reading import runs
from mezzotint.board.reading.root_folders import OutsideFolders
from mezzotint.board.reading.tails import make_printable
from mezzotint.errors import RecipeError
from mezzotint.settings.sections.sample import SolverName

_MAX_JOBS = 40
"""Jobs that are kept."""

_ENDED = "The process that generates images ended unexpectedly; try again."
_NUMBERS = {"steps": "--steps", "guidance": "--guidance"}


@dataclass(slots=True)
class DrawJob:
    """One `mezzotint sample` command. arguments: of the command; process: the PID that runs it; step, of: progress;
    image: the image so far, base64 WebP; files: names of the images in the folders of the page."""

    arguments: list[str]
    process: int
    step: int = 0
    of: int = 0
    image: str = ""
    sentences: list[str] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    done: bool = False
    error: str = ""

    def as_json(self) -> dict[str, Any]:
        """JSON for the page."""
        return {
            "command": shlex.join(["mezzotint", "sample", *self.arguments]), "step": self.step, "of": self.of,
            "image": self.image, "message": [make_printable(text) for text in self.sentences[-4:]],
            "files": self.files,
            "done": self.done, "error": make_printable(self.error),
        }  # fmt: skip


@dataclass(eq=False)
class DrawPages:
    """Handlers of the page Generate."""

    pages: Pages
    jobs: dict[int, DrawJob] = field(default_factory=dict)
    ready: bool = False
    _process: subprocess.Popen[str] | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def draw(self, request: Request) -> Response:
        """The page. It also starts the process that generates images."""
        if not self.pages.read_only:
            threading.Thread(target=self._start_process, daemon=True).start()
        query = request.query_params
        return self.pages.html(
            "draw.html", current_page="draw", folder=str(self.pages.roots.folders[0]), models=self._models(),
            solvers=get_args(SolverName),
            values={name: query.get(name, "") for name in ("a", "b", "prompt", "negative", "seed", "size", "steps",
                                                           "guidance", "solver", "adapter")},
        )  # fmt: skip

    async def begin(self, request: Request) -> Response:
        """Starts the jobs of a form: {a, b, prompt, …}; answers with the job numbers."""
        value = await read_body(request)
        models = [str(value.get(word, "")).strip() for word in ("a", "b")]
        lines = [_sample_arguments(self._model(model), value, self._adapters(value)) for model in models if model]
        if not lines:
            raise RecipeError("no model is given; choose a run, a checkpoint or a model", code="E1012")
        return JsonAnswer({"jobs": await run_in_threadpool(lambda: [self._submit(arguments) for arguments in lines])})

    def state(self, request: Request) -> Response:
        """The progress of jobs."""
        numbers = [parse_whole(text) for text in request.query_params.getlist("job")]
        jobs = {number: self.jobs[number].as_json() for number in numbers if number in self.jobs}
        return JsonAnswer({"ready": self.ready, "jobs": jobs})

    def image(self, request: Request) -> Response:
        """An image in a folder of the page."""
        return image_answer(self.pages.roots.path(request.query_params.get("file", "")), request)

    def close(self) -> None:
        """Ends the process."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()

    # --- models ---

    def _models(self) -> list[tuple[str, str]]:
        """(argument, description) of the available models."""
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
        return [(make_printable(word), make_printable(text)) for word, text in choices]

    def _model(self, word: str) -> str:
        """The argument of a model that the form names: a shipped model, or a path in the folders. Raises
        OutsideFolders."""
        if re.fullmatch(r"[\w.-]+", word) and os.path.isdir(MODELS / word):
            return word
        folder = self.pages.roots.folders[0]
        path = folder / word
        if not os.path.exists(path) or self.pages.roots.name_of(path) is None:
            raise OutsideFolders(word)
        return str(path)

    def _adapters(self, value: dict[str, Any]) -> list[str]:
        """`--adapter=FILE:SCALE` of each line of the form's adapters."""
        arguments = []
        for text in str(value.get("adapter", "")).splitlines():
            name, _, scale = text.strip().partition(":")
            if name:
                arguments.append(f"--adapter={self._model(name)}" + (f":{_with_decimal_point(scale)}" if scale else ""))
        return arguments

    # --- the process ---

    def _start_process(self) -> subprocess.Popen[str]:
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
                    cwd=self.pages.roots.folders[0],
                    start_new_session=True,
                )
                threading.Thread(target=self._read_answers, args=(self._process,), daemon=True).start()
            return self._process

    def _submit(self, arguments: list[str]) -> int:
        process = self._start_process()
        with self._lock:
            number = max(self.jobs, default=0) + 1
            self.jobs[number] = DrawJob(arguments, process.pid)
            while len(self.jobs) > _MAX_JOBS:
                self.jobs.pop(next(iter(self.jobs)))
            assert process.stdin is not None
            try:
                process.stdin.write(json.dumps({"id": number, "words": arguments}) + "\n")
                process.stdin.flush()
            except OSError:
                self.jobs[number].error, self.jobs[number].done = _ENDED, True
        return number

    def _read_answers(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            answer = json.loads(line)
            self.ready = self.ready or "ready" in answer
            job = self.jobs.get(answer.get("id", -1))
            if job is None:
                continue
            job.step, job.of = answer.get("step", job.step), answer.get("of", job.of)
            job.image = answer.get("image") or job.image
            job.sentences += [answer["message"]] if "message" in answer else []
            if answer.get("done"):
                job.error = answer.get("error", "")
                job.files = [] if job.error else self._files_of(job)
                job.done = True
        process.wait()  # it was killed or ran out of memory
        for job in list(self.jobs.values()):
            if not job.done and job.process == process.pid:
                job.error, job.done = job.error or _ENDED, True

    def _files_of(self, job: DrawJob) -> list[str]:
        """The images that a job has written, found by its last message."""
        match = re.search(r" in (.+); contact sheet: ", job.sentences[-1]) if job.sentences else None
        folder = self.pages.roots.folders[0] / match[1] if match is not None else None
        files = sorted(folder.iterdir()) if folder is not None and folder.is_dir() else []
        names = [self.pages.roots.name_of(path) for path in files if not path.name.startswith("contact")]
        return [name for name in names if name is not None]


def _sample_arguments(model: str, value: dict[str, Any], adapters: list[str]) -> list[str]:
    """The arguments of `mezzotint sample` for a form."""
    arguments = [model, f"--prompt={value.get('prompt', '')}"]
    if value.get("negative"):
        arguments.append(f"--negative={value['negative']}")
    for name, switch in _NUMBERS.items():
        if str(value.get(name, "")).strip():
            arguments.append(f"{switch}={_with_decimal_point(str(value[name]))}")
    for name in ("seed", "size", "solver"):
        if str(value.get(name, "")).strip():
            arguments.append(f"--{name}={str(value[name]).strip()}")
    return [*arguments, *adapters]


def _with_decimal_point(text: str) -> str:
    """A number with a decimal point: 7,5 becomes 7.5."""
    return re.sub(r"^\s*([+-]?\d+),(\d+)\s*$", r"\1.\2", text).strip()
