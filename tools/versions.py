"""`make oldest`, `make newest`: the tests with the floors of pyproject.toml, and with the newest releases.

Each has an environment of its own beside `.venv`, made once and brought up to date after: `.venv-oldest`, every
`name>=X` at exactly X; `.venv-newest`, every dependency at its newest release, whatever constraints.txt says. torch may
bring CUDA along, some 5 GB. Ends with pytest's status, or pip's where it finds no such set of packages.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tomllib
import venv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
FLOOR = re.compile(r"^(?P<name>[\w.-]+)>=(?P<version>[\w.]+)$")


def floors(project: Mapping[str, Any], extra: str = "dev") -> dict[str, str]:
    """The least version of each dependency, with those of an extra and of the extras that it names.

    project: the table `project` of pyproject.toml. Raises ValueError for a dependency that is not `name>=version`.
    """
    extras: Mapping[str, list[str]] = project["optional-dependencies"]
    versions = {}
    for line in [*project["dependencies"], *extras[extra]]:
        if inner := re.fullmatch(rf"{re.escape(project['name'])}\[(.*)\]", line):
            for name in inner[1].split(","):
                versions |= _parsed(extras[name])
        else:
            versions |= _parsed([line])
    return versions


def _parsed(lines: Sequence[str]) -> dict[str, str]:
    versions = {}
    for line in lines:
        parts = FLOOR.match(line)
        if parts is None:
            raise ValueError(f"pyproject.toml: {line!r} must be of the form name>=version")
        versions[parts["name"]] = parts["version"]
    return versions


def commands(which: str, pins: Mapping[str, str]) -> list[list[str]]:
    """What pip is told, for "oldest" or "newest"."""
    if which == "newest":
        return [["install", "--upgrade", "--upgrade-strategy", "eager", "--editable", ".[dev]"]]
    fixed = [f"{name}=={version}" for name, version in pins.items()]
    return [["install", *fixed], ["install", "--no-deps", "--editable", "."]]


def table(pins: Mapping[str, str], installed: Mapping[str, str]) -> list[str]:
    """A line for each dependency: its floor, and the version that is installed."""
    plain = {_plain(name): version for name, version in installed.items()}
    rows = [f"{'package':<20} {'floor':>10} {'installed':>18}"]
    return rows + [f"{name:<20} {floor:>10} {plain.get(_plain(name), 'none'):>18}" for name, floor in pins.items()]


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def main(words: Sequence[str] | None = None) -> int:
    """The exit status of pip if it fails, otherwise of pytest."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("which", choices=["oldest", "newest"])
    parser.add_argument("--workers", type=int, default=2, help="processes of pytest; 2")
    parser.add_argument("--as-installed", action="store_true", help="leave the environment as it is")
    parser.add_argument("paths", nargs="*", help="tests; all of them")
    options = parser.parse_args(words)
    pins = floors(tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"])
    folder = ROOT / f".venv-{options.which}"
    python = str(folder / "bin" / "python")
    if not folder.exists():
        venv.create(folder, with_pip=True)
    for command in [] if options.as_installed else commands(options.which, pins):
        status = subprocess.run([python, "-m", "pip", "--quiet", *command], cwd=ROOT, check=False).returncode
        if status:
            return status
    listed = subprocess.run([python, "-m", "pip", "list", "--format=json"], capture_output=True, text=True, check=True)
    print("\n".join(table(pins, {p["name"]: p["version"] for p in json.loads(listed.stdout)})), flush=True)
    spread = ["-n", str(options.workers), "--dist", "loadfile"] if options.workers > 1 else []
    return subprocess.run([python, "-m", "pytest", *spread, *options.paths], cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
