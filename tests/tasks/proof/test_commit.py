"""The commit of the running Mezzotint."""

from __future__ import annotations

import json
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from mezzotint.tasks.proof import commit


def git(folder: Path, *words: str) -> str:
    line = ["git", "-C", str(folder), "-c", "user.name=a", "-c", "user.email=a@b", *words]
    return subprocess.run(line, check=True, capture_output=True, text=True).stdout.strip()


def test_git_checkout_reports_commit_and_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "src" / "mezzotint"
    package.mkdir(parents=True)
    for path in (package / "a.py", tmp_path / "pyproject.toml"):
        path.write_text("one\n")
    assert commit.of_checkout(package) is None
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "first")
    head = git(tmp_path, "rev-parse", "HEAD")
    monkeypatch.setenv("GIT_DIR", "/nowhere")  # as in a git hook of another repository
    assert commit.of_checkout(package) == head
    (package / "a.py").write_text("two\n")
    assert commit.of_checkout(package) == f"{head}-dirty"
    installed = tmp_path / "venv" / "site-packages" / "mezzotint"
    installed.mkdir(parents=True)
    assert commit.of_checkout(installed) is None, "the surrounding repository is not ours"
    monkeypatch.setenv("PATH", "")
    assert commit.of_checkout(package) is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (json.dumps({"url": "https://a/b", "vcs_info": {"vcs": "git", "commit_id": "ab12"}}), "ab12"),
        (json.dumps({"url": "file:///a", "dir_info": {"editable": True}}), None),
        ("[]", None),
        ("{", None),
        (None, None),
    ],
)
def test_pip_install_from_repository_reports_commit(
    text: str | None, expected: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Installed:
        def read_text(self, name: str) -> str | None:
            return text if name == "direct_url.json" else "no"

    def distribution(name: str) -> Any:
        if name != "mezzotint":
            raise metadata.PackageNotFoundError
        return Installed()

    monkeypatch.setattr(metadata, "distribution", distribution)
    assert commit.of_installed("mezzotint") == expected
    assert commit.of_installed("none") is None
