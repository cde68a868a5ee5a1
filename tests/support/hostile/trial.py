"""A trial of an entry: it is made, read by its reader's door while somebody looks on, and held against its class."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mezzotint.errors import MezzotintError, escape_line
from mezzotint.settings.reference import error_codes
from support.hostile import doors, judge, trainers
from support.hostile.doors import Ended, Outcome
from support.hostile.entry import Entry

DOORS = doors.DOORS | {name: door for trainer in trainers.modules() for name, door in trainer.DOORS.items()}


@contextmanager
def at_home(place: Path) -> Iterator[None]:
    """Within, the home folder, the folder of temporary files and the current folder lie below another."""
    import tempfile

    kept = {name: os.environ.get(name) for name in ("HOME", "TMPDIR")}
    before, temporary = Path.cwd(), tempfile.tempdir
    for name in ("home", "tmp", "here"):
        (place / name).mkdir(parents=True, exist_ok=True)
    os.environ |= {"HOME": str(place / "home"), "TMPDIR": str(place / "tmp")}
    tempfile.tempdir = str(place / "tmp")
    os.chdir(place / "here")
    try:
        yield
    finally:
        os.chdir(before)
        tempfile.tempdir = temporary
        for name, value in kept.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def problems(entry: Entry, root: Path) -> list[str]:
    """What is not as the manifest says; nothing where all is. root: an empty folder for it alone."""
    given, work = root / "given" / "set", root / "work"
    given.mkdir(parents=True)
    work.mkdir()
    (root / "given" / "precious").write_text("mine")
    entry.make(given)
    may_write = entry.reader in ("layout", "cache")  # what is read notes its damage beside it
    may_start = entry.reader in ("pickle", "model")  # which are read by a process of their own
    places = [work, given] if may_write else [work]
    before = judge.tree(root / "given")
    error: BaseException | None = None
    outcome = Outcome()
    with at_home(work / "home"), judge.looking_on(*places, may_start=may_start) as seen:
        try:
            with judge.limited(seconds=entry.seconds, megabytes=entry.megabytes):
                outcome = DOORS[entry.reader](given, work)
        except (Exception, judge.Hangs) as caught:
            error = caught
    wrong = [f"it did {one}" for one in seen]
    wrong += list(_of_error(entry, error) if error is not None else _of_outcome(entry, outcome))
    if not may_write and judge.tree(root / "given") != before:
        wrong.append("what was given has changed")
    if any(path.name == "canary" for path in root.rglob("canary")):
        wrong.append("a program of the file has run")
    return wrong


def _of_error(entry: Entry, error: BaseException) -> Iterator[str]:
    """What is wrong with an error: it is none of ours, or not the one that belongs there."""
    if isinstance(error, Ended):
        text, status, codes = str(error), error.status, [code for code in error_codes() if code in str(error)]
    elif isinstance(error, MezzotintError):
        text, status = str(error), error.exit_status
        codes = [problem.code for problem in getattr(error, "problems", ())] or [error.code]
    else:
        yield f"{type(error).__name__}: {str(error)[:200]}"
        return
    if entry.expected != "E2" or status != 2:
        yield f"refused with status {status}: {text[:200]}"
    if not codes or any(code not in error_codes() for code in codes):
        yield f"a code that nobody explains: {codes}"
    if entry.code and not any(code.startswith(entry.code) for code in codes):
        yield f"{codes} and not {entry.code}: {text[:200]}"
    if escape_line(entry.names) not in text or entry.says not in text:
        yield f"the sentence lacks {entry.names!a} or {entry.says!r}: {text[:300]}"
    if not judge.is_plain(text):
        yield f"the sentence steers a terminal: {text!a:.200}"


def _of_outcome(entry: Entry, outcome: Outcome) -> Iterator[str]:
    """What is wrong with a reading that was not refused."""
    if entry.expected == "E2":
        yield f"it was read, and {entry.code} is expected"
    elif entry.expected == "ok" and outcome.skipped:
        yield f"skipped: {outcome.skipped!a:.300}"
    elif entry.expected == "S" and not any(entry.names in name and entry.says in why for name, why in outcome.skipped):
        yield f"skipped is {outcome.skipped!a:.300}, and not {entry.names!a} with {entry.says!r}"
    if not judge.is_plain(outcome.said):
        yield f"what it says steers a terminal: {outcome.said!a:.300}"
