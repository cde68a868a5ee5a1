"""Surroundings that lack what most have: no home, a folder for temporary files that takes nothing, the locale C, no
input, no terminal, forty columns."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.image_catalogues import paint


def run(words: list[str], folder: Path, **env: str) -> subprocess.CompletedProcess[bytes]:
    """The program with all of that at once."""
    plain = {name: os.environ[name] for name in ("PATH",) if name in os.environ}
    bare = {"LANG": "C", "LC_ALL": "C", "TMPDIR": "/dev/null/full", "COLUMNS": "40", "TERM": "dumb"}
    return subprocess.run(
        ["/bin/sh", "-c", 'exec "$@" <&-', "sh", sys.executable, "-m", "mezzotint", *words], capture_output=True,
        env=plain | bare | env, cwd=folder, start_new_session=True, check=False,
    )  # fmt: skip


def test_a_small_verb_works_in_bare_surroundings(tmp_path: Path) -> None:
    done = run(["explain", "data.remainder"], tmp_path)
    assert done.returncode == 0, done.stderr
    assert b"data.remainder" in done.stdout
    assert not done.stderr
    wrong = run(["explain", "data.\xfcberall"], tmp_path)
    assert wrong.returncode == 2
    assert b"error[E" in wrong.stderr
    assert b"Traceback" not in wrong.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
@pytest.mark.faults
def test_a_run_works_in_bare_surroundings(tmp_path: Path) -> None:
    paint(tmp_path / "pictures", 2, size=(64, 64))
    words = ["train", "tiny_cpu", "data.path=pictures", "run.folder=run", "run.steps=1", "data.cache.path=cache"]
    done = run(words, tmp_path)
    assert done.returncode == 0, done.stderr.decode(errors="replace")
    assert (tmp_path / "run" / "exports" / "step-00000001").is_dir()
    assert b"\x1b" not in done.stdout, "nobody's terminal is steered"
