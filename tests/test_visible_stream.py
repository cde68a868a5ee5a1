"""Control characters are escaped in all output."""

from __future__ import annotations

import argparse
import io
import json
import logging
import re
import sys
import threading
from collections.abc import Sequence
from types import SimpleNamespace

import pytest

from mezzotint.cli import main
from mezzotint.errors import VisibleStream, escape_controls
from mezzotint.tasks import ls

HOSTILE = "\x1b[31mred\x1b]0;title\x07 \x9b7m\x7f\r\u202eback"


def test_control_characters_in_output_are_escaped(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(arguments: Sequence[str]) -> int:
        print("two\nlines\tä", HOSTILE)
        sys.stdout.writelines([HOSTILE, "\n"])
        print(HOSTILE, file=sys.stderr)
        handler = logging.StreamHandler()
        handler.handle(logging.LogRecord("a library", logging.ERROR, "", 1, HOSTILE, None, None))
        thread = threading.Thread(target=lambda: sys.stderr.write(HOSTILE))
        thread.start()
        thread.join()
        raise ValueError(f"a bug {HOSTILE}")

    monkeypatch.setattr(ls, "run", run)
    before = sys.stdout, sys.stderr
    assert main(["ls"]) == 1
    assert (sys.stdout, sys.stderr) == before
    captured = capsys.readouterr()
    assert captured.out.startswith("two\nlines\tä \\x1b[31mred\\x1b]0;title\\x07 \\u009b7m\\u007f\\x0d\\u202eback\n")
    for text in (captured.out, captured.err):
        assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", text)
    assert captured.err.count("\\x1b[31mred") == 4


def test_escaped_json_has_the_same_value() -> None:
    value = {"é\u200c\xa0": ["\x9b\x7f\x85\u2028\u202e", "\x1b\n", "\U000e0001"]}
    assert json.loads(escape_controls(json.dumps(value, ensure_ascii=False))) == value


@pytest.mark.parametrize("words", [["--help"], ["train", "--help"]])
def test_help_keeps_the_colours_of_argparse(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(argparse.ArgumentParser, "format_help", lambda parser: f"\x1b[1m{parser.prog}\x1b[0m\n")
    assert main(words) == 0
    assert capsys.readouterr().out.startswith("\x1b[1mmezzotint")


def test_other_stream_methods_are_forwarded() -> None:
    stream = io.StringIO()
    visible = VisibleStream(stream)
    assert visible.write("\x1b") == 1
    assert (visible.closed, visible.isatty(), stream.getvalue()) == (False, False, "\\x1b")
    terminal = SimpleNamespace(fileno=lambda: 7, encoding="utf-8")
    assert VisibleStream(terminal).fileno() == 7  # type: ignore[arg-type]
