"""The commit of Mezzotint that runs: of the checkout that contains its modules, or of the source that pip installed."""

from __future__ import annotations

import importlib.metadata
import json
import os
import subprocess
from contextlib import suppress
from functools import cache
from pathlib import Path

import mezzotint

_SECONDS = 20


@cache
def current_commit() -> str | None:
    """The commit of this program, 40 hexadecimal digits, with the suffix `-dirty` if files of the checkout have
    changed. None if unknown: a wheel of a release, a checkout without git on the machine."""
    return of_checkout(Path(mezzotint.__file__).parent) or of_installed("mezzotint")


def of_checkout(package: Path) -> str | None:
    """The commit of the checkout that has the package as `src/NAME`; a repository around an installed package does not
    count."""
    top = package.resolve().parents[1]
    if package.resolve().parent.name != "src" or not (top / ".git").exists() or not (top / "pyproject.toml").is_file():
        return None
    line = [
        "git",
        "-C",
        str(top),
        "--no-optional-locks",
        "describe",
        "--always",
        "--dirty",
        "--abbrev=40",
        "--exclude=*",
    ]
    surroundings = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    try:
        done = subprocess.run(line, capture_output=True, text=True, check=True, timeout=_SECONDS, env=surroundings)
    except (OSError, subprocess.SubprocessError):  # no git, or it does not trust the owner of the folder
        return None
    return done.stdout.strip() or None


def of_installed(name: str) -> str | None:
    """The commit that pip installed, from direct_url.json."""
    with suppress(importlib.metadata.PackageNotFoundError, ValueError, KeyError, TypeError):
        text = importlib.metadata.distribution(name).read_text("direct_url.json")
        return str(json.loads(text or "")["vcs_info"]["commit_id"])
    return None
