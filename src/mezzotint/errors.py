"""What can go wrong in the reader's world: kinds of errors, their exit status, and the words of each. Their stable
codes are in `codes/`.

An error says where, what and what to do, in one sentence. These errors are printed without a traceback; any other
exception is our own bug, shown with one and exit status 1.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, NamedTuple, TextIO

_LONGEST = 200
"""A name of more letters is like no other, and looking for one would take long."""


def most_alike(name: str, known: Iterable[str], *, cutoff: float = 0.6) -> str | None:
    """The known name that is most like another, if any is. cutoff: how alike they must be, from 0 to 1 (equal)."""
    import difflib  # a name that is right needs none

    if len(name) > _LONGEST:
        return None
    near = difflib.get_close_matches(name, list(known), n=1, cutoff=cutoff)
    return near[0] if near else None


def did_you_mean(name: str, known: Iterable[str], otherwise: str = "", *, cutoff: float = 0.6) -> str:
    """The end of a sentence about an unknown name: the known one that is most like it, or `otherwise`."""
    near = most_alike(name, known, cutoff=cutoff)
    return f"did you mean {near}?" if near is not None else otherwise


def visible(text: str) -> str:
    """A line as a terminal may get it: what would steer it, such as in a file's name, stands there as an escape."""
    return "".join(c if c.isprintable() or c == "\t" else c.encode("unicode_escape").decode() for c in text)


_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
"""What steers a terminal or turns its text around: control characters but tab and newline, and marks of direction."""


def escape_controls(text: str) -> str:
    """Text of any number of lines as a terminal may get it. In JSON the escapes mean what was there."""
    return _CONTROLS.sub(lambda match: f"\\x{ord(match[0]):02x}" if match[0] < " " else f"\\u{ord(match[0]):04x}", text)


class VisibleStream:
    """Standard output or error of the command line: all that is printed goes through `escape_controls`, what libraries
    print among it, since it may quote a file's name or content. stream: the stream behind it, for our own escapes."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        """Writes text."""
        self.stream.write(escape_controls(text))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Writes texts one after the other."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


class Problem(NamedTuple):
    """One thing that is wrong in a file or a request.

    where: the recipe path or file it concerns; what: the sentence; remedy: what to write instead ("" when `what` says
    it); code: `E…`, which `codes/` explains; line: 1-based line in the file, or None when it came from the command line
    or a default; is_default: nobody has given the value.
    """

    where: str
    what: str
    remedy: str = ""
    code: str = "E1000"
    line: int | None = None
    is_default: bool = False


class MezzotintError(Exception):
    """An error of the reader's world. `code` is stable and is what `mezzotint explain CODE` expands."""

    exit_status: ClassVar[int] = 2
    default_code: ClassVar[str] = "E1000"

    def __init__(self, message: str, *, code: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.code = code or self.default_code

    def __str__(self) -> str:
        return f"error[{self.code}]: " + "\n".join(map(visible, self.message.split("\n")))

    def __reduce__(self) -> tuple[object, ...]:
        # the code travels back from worker processes, too
        return (_rebuild, (type(self), self.message, self.code))


def _rebuild(kind: type[MezzotintError], message: str, code: str) -> MezzotintError:
    return kind(message, code=code)


class RecipeError(MezzotintError):
    """The request is wrong. `problems` holds every one found in a single pass, in the order of the file. `closing` is a
    way out of all of them."""

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
        place = max((len(_line(p)) for p in self.problems), default=0)
        width = max(min(len(p.where), _LONGEST) for p in self.problems)
        for p in self.problems:
            remedy = f"; {p.remedy}" if p.remedy else ""
            lines.append(f"  {_line(p):<{place}}  {p.where[:_LONGEST]:<{width}}  {p.code} {p.what}{remedy}")
        text = "\n".join([*lines, *([f"  {self.closing}"] if self.closing else [])])
        return "\n".join(map(visible, text.split("\n")))


def _line(problem: Problem) -> str:
    if problem.line is not None:
        return f"line {problem.line}"
    return "default" if problem.is_default else "given"


class DatasetError(MezzotintError):
    """Pictures, clips or captions that cannot be used."""

    default_code = "E1200"


class CacheError(MezzotintError):
    """A cache that cannot be read, written or trusted."""

    default_code = "E1300"


class WeightsError(MezzotintError):
    """Base weights or an exported model that cannot be read."""

    default_code = "E1400"


class CheckpointError(MezzotintError):
    """A checkpoint or run folder that cannot be continued."""

    default_code = "E1500"


class Diverged(MezzotintError):
    """Training went wrong numerically: non-finite values, or a part that does not learn. step: the one that every
    process has found it at, counted from 1, where the run could go back from it."""

    exit_status = 3
    default_code = "E1600"

    def __init__(self, message: str, *, code: str | None = None, step: int | None = None) -> None:
        super().__init__(message, code=code)
        self.step = step


class StorageError(MezzotintError):
    """The disk is full or refuses to be written."""

    exit_status = 4
    default_code = "E1700"


class OutOfMemory(MezzotintError):
    """The device has not enough memory for the request."""

    exit_status = 5
    default_code = "E1750"


class PeerLost(MezzotintError):
    """Another process of the same run, or a loader worker, is gone."""

    exit_status = 6
    default_code = "E1800"


class Stopped(MezzotintError):
    """A signal asked the run to stop; it stopped after a clean save. Exit status 128 + the signal's number."""

    default_code = "E1900"

    def __init__(self, message: str, *, signal_number: int = 15, code: str | None = None) -> None:
        super().__init__(message, code=code)
        self.signal_number = signal_number

    def __str__(self) -> str:
        return self.message
