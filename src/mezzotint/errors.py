"""Errors that users can fix: their kinds, exit status and messages. Their stable codes are in `codes/`.

A message says what happened, where, and what to do, in one sentence. These errors are printed without a traceback; any
other exception is a bug in Mezzotint, printed with its traceback and exit status 1.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, NamedTuple, TextIO

_LONGEST = 200
"""Longer names are not compared: nothing is similar to them, and it would take long."""


def find_closest(name: str, options: Iterable[str], *, cutoff: float = 0.6) -> str | None:
    """The option most similar to a name, if any. cutoff: the minimal similarity, from 0 to 1 (equal)."""
    import difflib  # imported late: a correct name does not need it

    if len(name) > _LONGEST:
        return None
    near = difflib.get_close_matches(name, list(options), n=1, cutoff=cutoff)
    return near[0] if near else None


def did_you_mean(name: str, options: Iterable[str], otherwise: str = "", *, cutoff: float = 0.6) -> str:
    """The end of a sentence about an unknown name: the most similar option, or `otherwise`."""
    near = find_closest(name, options, cutoff=cutoff)
    return f"did you mean {near}?" if near is not None else otherwise


def escape_line(text: str) -> str:
    """A line that is safe for a terminal: control characters, such as in a file's name, are escaped."""
    return "".join(c if c.isprintable() or c == "\t" else c.encode("unicode_escape").decode() for c in text)


_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
"""Characters that control a terminal or the direction of text: control characters except tab and newline, and
directional marks."""


def escape_controls(text: str) -> str:
    """Text of any number of lines that is safe for a terminal. In JSON the escapes keep their meaning."""
    return _CONTROLS.sub(lambda match: f"\\x{ord(match[0]):02x}" if match[0] < " " else f"\\u{ord(match[0]):04x}", text)


class VisibleStream:
    """Standard output or error of the command line. Everything printed passes through `escape_controls`, output of
    libraries included, because it may quote a file's name or content. stream: the underlying stream, for our own escape
    sequences."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        """Writes text."""
        self.stream.write(escape_controls(text))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Writes several texts."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


class Problem(NamedTuple):
    """One problem in a file or a request.

    where: the recipe path or file it concerns; message: the sentence; remedy: the correction ("" if `message` contains
    it); code: `E…`, which `codes/` explains; line: 1-based line in the file, or None for the command line or a default;
    is_default: whether the value is a default.
    """

    where: str
    message: str
    remedy: str = ""
    code: str = "E1000"
    line: int | None = None
    is_default: bool = False


class MezzotintError(Exception):
    """An error that the user can fix. `code` is stable; `mezzotint explain CODE` explains it."""

    exit_status: ClassVar[int] = 2
    default_code: ClassVar[str] = "E1000"

    def __init__(self, message: str, *, code: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.code = code or self.default_code

    def __str__(self) -> str:
        return f"error[{self.code}]: " + "\n".join(map(escape_line, self.message.split("\n")))

    def __reduce__(self) -> tuple[object, ...]:
        # keeps the code when an error is passed back from a worker process
        return (_rebuild, (type(self), self.message, self.code))


def _rebuild(kind: type[MezzotintError], message: str, code: str) -> MezzotintError:
    return kind(message, code=code)


class RecipeError(MezzotintError):
    """The request is wrong. `problems` holds all problems of a single pass, in the order of the file. `closing` is a
    remedy for all of them."""

    default_code = "E1000"

    def __init__(
        self, message: str, *, code: str | None = None, problems: Sequence[Problem] = (), closing: str = ""
    ) -> None:
        super().__init__(message, code=code or (problems[0].code if problems else None))
        self.problems = tuple(problems)
        self.closing = closing

    def __str__(self) -> str:
        if not self.problems:
            return super().__str__()
        many = f"{len(self.problems)} problem{'s' if len(self.problems) > 1 else ''}"
        lines = [f"{self.message} has {many}"]
        line_width = max((len(_line(p)) for p in self.problems), default=0)
        width = max(min(len(p.where), _LONGEST) for p in self.problems)
        for p in self.problems:
            remedy = f"; {p.remedy}" if p.remedy else ""
            lines.append(f"  {_line(p):<{line_width}}  {p.where[:_LONGEST]:<{width}}  {p.code} {p.message}{remedy}")
        text = "\n".join([*lines, *([f"  {self.closing}"] if self.closing else [])])
        return "\n".join(map(escape_line, text.split("\n")))


def _line(problem: Problem) -> str:
    if problem.line is not None:
        return f"line {problem.line}"
    return "default" if problem.is_default else "given"  # on the command line


class NothingToDo(MezzotintError):
    """The request needs no work, and the message says why. Exit status 0."""

    exit_status = 0

    def __str__(self) -> str:
        return self.message


class DatasetError(MezzotintError):
    """Images, clips or captions cannot be used."""

    default_code = "E1200"


class CacheError(MezzotintError):
    """A cache cannot be read, written or trusted."""

    default_code = "E1300"


class WeightsError(MezzotintError):
    """Base weights or an exported model cannot be read."""

    default_code = "E1400"


class CheckpointError(MezzotintError):
    """A checkpoint or run folder cannot be resumed."""

    default_code = "E1500"


class Diverged(MezzotintError):
    """Training failed numerically: non-finite values, or a part that does not learn. step: the step at which every
    process found it, counted from 1, if the run could roll back from it."""

    exit_status = 3
    default_code = "E1600"

    def __init__(self, message: str, *, code: str | None = None, step: int | None = None) -> None:
        super().__init__(message, code=code)
        self.step = step


class StorageError(MezzotintError):
    """The disk is full or cannot be written."""

    exit_status = 4
    default_code = "E1700"


class OutOfMemory(MezzotintError):
    """The device does not have enough memory for the request."""

    exit_status = 5
    default_code = "E1750"


class PeerLost(MezzotintError):
    """Another process of the same run, or a loader worker, is gone."""

    exit_status = 6
    default_code = "E1800"


class Stopped(MezzotintError):
    """A signal asked the run to stop; it stopped after saving. Exit status 128 + the signal's number."""

    default_code = "E1900"

    def __init__(self, message: str, *, signal_number: int = 15, code: str | None = None) -> None:
        super().__init__(message, code=code)
        self.signal_number = signal_number

    def __str__(self) -> str:
        return self.message
