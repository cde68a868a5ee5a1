"""Removing a folder of `compat` leaves everything else whole; so does removing them all."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from mezzotint import compat
from support.shipped_recipes import write_films

ROOT = Path(__file__).parents[2]
FOLDERS = sorted(init.parent.name for init in Path(compat.__file__).parent.glob("*/__init__.py"))
TRAINERS = [name for name in FOLDERS if name != "kit"]
LINKS = "test_every_link_has_an_existing_target"
COPIED = ("src", "tests", "recipes", "docs", "tools", "benchmarks", "pyproject.toml", "constraints.txt",
          "requirements.lock", "bill-of-materials.cdx.json", "Makefile", "README.md", "CHANGELOG.md", "CONTRIBUTING.md",
          "SECURITY.md", "LICENSE", "LICENSES", ".ci", ".pre-commit-config.yaml", ".gitignore")  # fmt: skip

CHECK = """
import sys
from pathlib import Path
from support.shipped_recipes import SMALL, TINY, WORDS
from mezzotint.cli import main
from mezzotint.tasks.check.memory import Activations, MetaModel

MetaModel.activations = lambda self, size, samples: Activations(samples, 1000 * samples, 0, 0)  # not measured here
names = [path.stem for path in sorted(Path(sys.argv[1]).glob("*.yaml"))]
usual = (*TINY, "model.path=tiny-sd", "data.path=shapes", *SMALL, "optim.optimizer={kind: adamw}", "data.batch_size=2")
more = {"mini-lora": ("data.captions.trigger=<wug>",)}
failed = [name for name in names if main(["check", name, *WORDS.get(name, (*usual, *more.get(name, ())))]) != 0]
assert names and not failed, failed
"""


def copy_without(removed: Iterable[str], place: Path) -> Path:
    """A copy of the tree that lacks folders of `compat` and their tests."""
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, place / name, ignore=shutil.ignore_patterns("__pycache__", ".hypothesis"))
        elif source.exists():
            place.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, place / name)
    for name in removed:
        shutil.rmtree(place / "src" / "mezzotint" / "compat" / name)
        shutil.rmtree(place / "tests" / "compat" / name, ignore_errors=True)
    return place


def run(tree: Path, *words: str | Path, cwd: Path | None = None) -> str:
    """What a program prints that runs with the sources of a tree; it must succeed."""
    paths = os.pathsep.join(map(str, (tree / "src", tree / "tests")))
    environment = os.environ | {"PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [sys.executable, *map(str, words)],
        cwd=cwd or tree,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout[-6000:]}\n{done.stderr[-3000:]}"
    return done.stdout


def lint(tree: Path) -> None:
    """The contracts of import-linter."""
    run(tree, "-c", "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports(no_cache=True))")


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", TRAINERS)
def test_the_rest_is_whole_without_a_folder(name: str, tmp_path: Path, write_clip: Callable[..., Path]) -> None:
    """Imports, the collection of all tests, links of the pages, `check` of every recipe that is no trainer's, and one
    small training."""
    tree, here = copy_without([name], tmp_path / "tree"), tmp_path / "here"
    lint(tree)
    collected = run(tree, "-m", "pytest", "-p", "no:cacheprovider", "--collect-only", "-q", "-m", "")
    assert f"tests/compat/{name}/" not in collected
    run(tree, tree / "tools" / "write_docs.py")
    run(tree, "-m", "pytest", "-p", "no:cacheprovider", f"tests/test_documents.py::{LINKS}")
    write_films(here / "films", write_clip)
    run(tree, "-c", CHECK, tree / "recipes", cwd=here)
    run(tree, "-m", "mezzotint", "train", "tiny_cpu", "run.steps=2", "run.tensorboard=false", cwd=here)
    assert (here / "runs" / "tiny_cpu" / "exports").is_dir()


LEFT_OUT = {
    "tests/test_documents.py": "the pages of the tree speak of trainers: their recipes, command lines and links",
}
"""Files and tests that need all folders, with the reason."""


@pytest.mark.slow
@pytest.mark.timeout(2400)
def test_the_suite_passes_without_any_folder(tmp_path: Path) -> None:
    """The default run of all other tests, after the generated pages are written for what is left. One process, since
    `make slow` runs two."""
    tree = copy_without(FOLDERS, tmp_path / "tree")
    for test in (tree / "tests" / "compat").glob("test_*.py"):
        test.unlink()  # what holds for every folder
    assert [path.name for path in (tree / "src" / "mezzotint" / "compat").iterdir()] == ["__init__.py"]
    lint(tree)
    run(tree, tree / "tools" / "write_docs.py")
    ignored = [f"--{'deselect' if '::' in name else 'ignore'}={name}" for name in LEFT_OUT]
    run(tree, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:xdist", *ignored)
