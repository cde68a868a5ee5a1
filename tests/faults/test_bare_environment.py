"""A bare environment: no home, an unusable folder for temporary files, the locale C, no stdin, no terminal, 40
columns."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.image_catalogues import paint


def run(words: list[str], folder: Path, **env: str) -> subprocess.CompletedProcess[bytes]:
    """Runs the program in such an environment."""
    plain = {name: os.environ[name] for name in ("PATH",) if name in os.environ}
    bare = {"LANG": "C", "LC_ALL": "C", "TMPDIR": "/dev/null/full", "COLUMNS": "40", "TERM": "dumb"}
    return subprocess.run(
        ["/bin/sh", "-c", 'exec "$@" <&-', "sh", sys.executable, "-m", "mezzotint", *words], capture_output=True,
        env=plain | bare | env, cwd=folder, start_new_session=True, check=False,
    )  # fmt: skip


def test_explain_works_in_a_bare_environment(tmp_path: Path) -> None:
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
@pytest.mark.exhaustive
@pytest.mark.faults
def test_train_works_in_a_bare_environment(tmp_path: Path) -> None:
    paint(tmp_path / "images", 2, size=(64, 64))
    words = ["train", "tiny_cpu", "data.path=images", "run.folder=run", "run.steps=1", "data.cache.path=cache"]
    done = run(words, tmp_path)
    assert done.returncode == 0, done.stderr.decode(errors="replace")
    assert (tmp_path / "run" / "exports" / "step-00000001").is_dir()
    assert b"\x1b" not in done.stdout, "no escape sequences"
