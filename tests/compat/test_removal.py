"""Each folder of `compat` can be deleted together with its tests, and nothing else breaks."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

from mezzotint import compat
from support.forked import exit_status, import_all

ROOT = Path(__file__).parents[2]
FOLDERS = sorted(init.parent.name for init in Path(compat.__file__).parent.glob("*/__init__.py"))
REMOVABLE = [name for name in FOLDERS if name != "kit"]
LINKS = "tests/test_documents.py::test_every_link_has_an_existing_target"
COPIED = ("src", "tests", "recipes", "docs", "tools", "benchmarks", "pyproject.toml", "constraints.txt",
          "requirements.lock", "bill-of-materials.cdx.json", "Makefile", "README.md", "CHANGELOG.md", "CONTRIBUTING.md",
          "SECURITY.md", "LICENSE", "LICENSES", ".ci", ".pre-commit-config.yaml", ".gitignore")  # fmt: skip
IMPORT = re.compile(r"^ *(?:from|import) +([\w.]+)", re.MULTILINE)


def copy_tree(target: Path) -> Path:
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, target / name, ignore=shutil.ignore_patterns("__pycache__", ".hypothesis"))
        elif source.exists():
            target.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, target / name)
    return target


def folders_of(tree: Path, name: str) -> list[Path]:
    """The folder of a trainer and that of its tests."""
    return [path for root in ("src/mezzotint", "tests") if (path := tree / root / "compat" / name).exists()]


def remove(tree: Path, names: Iterable[str]) -> None:
    for folder in [folder for name in names for folder in folders_of(tree, name)]:
        shutil.rmtree(folder)


def run_in_fork(tree: Path, out: Path, function: Callable[[], object]) -> str:
    """What a function prints in a process whose `mezzotint` and tests are those of a tree; it must return 0 or None."""
    import_all()
    from diffusers import AutoencoderKL, UNet2DConditionModel  # noqa: F401 (imported once, before all forks)

    child = os.fork()
    if not child:
        status = 1
        try:
            handle = os.open(out, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(handle, 1)
            os.dup2(handle, 2)
            sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w")
            for module in [m for m in sys.modules if m.partition(".")[0] in ("mezzotint", "support", "tests")]:
                del sys.modules[module]
            support = sorted((tree / "tests" / "compat").glob("*/support"))
            sys.path[:] = [path for path in sys.path if not Path(path).is_relative_to(ROOT / "tests")]
            sys.path[:0] = map(str, (*support, tree / "src", tree / "tests", tree / "tools"))
            os.chdir(tree)
            status = int(function() or 0)  # type: ignore[call-overload]
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)
    assert exit_status(child) == 0, out.read_text("utf-8")[-6000:]
    return out.read_text("utf-8")


def run_python(tree: Path, *words: str | Path) -> str:
    paths = os.pathsep.join(map(str, (tree / "src", tree / "tests")))
    environment = os.environ | {"PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, *map(str, words)]
    done = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stdout[-6000:]}\n{done.stderr[-3000:]}"
    return done.stdout


def check_contracts(tree: Path) -> None:
    """The contracts of import-linter."""
    program = "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports(no_cache=True))"
    run_python(tree, "-c", program)


def write_pages_and_train(run_folder: Path) -> None:
    """Writes the generated pages and follows the links of all; reads every recipe; checks and trains a small one."""
    import runpy

    from mezzotint.cli import main
    from mezzotint.settings.reading.read import read, shipped_recipes
    from mezzotint.tasks.check.meta_model import Activations, MetaModel

    runpy.run_path("tools/write_docs.py", run_name="__main__")
    assert pytest.main(["-p", "no:cacheprovider", LINKS]) == 0
    for recipe in shipped_recipes():
        read(recipe, ["data.path=images"])
    MetaModel.activations = lambda self, size, samples: Activations(samples, 0, 0, 0)  # type: ignore[method-assign]
    small = ["tiny_cpu", "run.steps=1", "optim.accumulation=1", "run.tensorboard=false", f"run.folder={run_folder}"]
    assert main(["check", *small]) == 0
    assert main(["train", *small]) == 0
    assert (run_folder / "exports").is_dir()


@pytest.fixture(scope="module")
def imports() -> dict[Path, set[str]]:
    """The modules that each file of the sources, tests and tools imports."""
    files = [path for folder in ("src", "tests", "tools") for path in (ROOT / folder).rglob("*.py")]
    return {path.relative_to(ROOT): set(IMPORT.findall(path.read_text("utf-8"))) for path in files}


@pytest.mark.parametrize("name", REMOVABLE)
def test_nothing_outside_a_folder_imports_it(name: str, imports: dict[Path, set[str]]) -> None:
    folders = [folder.relative_to(ROOT) for folder in folders_of(ROOT, name)]
    support = {path.stem for path in (ROOT / "tests" / "compat" / name / "support").glob("*") if path.suffix == ".py"}
    importers = {
        path
        for path, modules in imports.items()
        if not any(path.is_relative_to(folder) for folder in folders)
        and any(module in support or f"{module}.".startswith(f"mezzotint.compat.{name}.") for module in modules)
    }
    assert importers == set()


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copy_tree(tmp_path_factory.mktemp("removal") / "tree")


@pytest.fixture
def removed(tree: Path, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[list[str]]:
    """Folders that are missing from the tree during a test."""
    names: list[str] = request.param
    folders = [folder for name in names for folder in folders_of(tree, name)]
    moved = {folder: tmp_path / str(number) for number, folder in enumerate(folders)}
    for folder, aside in moved.items():
        folder.rename(aside)
    yield names
    for folder, aside in moved.items():
        aside.rename(folder)
    shutil.rmtree(tree / "docs")  # a test may have written its pages
    shutil.copytree(ROOT / "docs", tree / "docs")


@pytest.mark.slow
@pytest.mark.parametrize("removed", [[name] for name in REMOVABLE], ids=REMOVABLE, indirect=True)
def test_rest_works_without_a_folder(removed: list[str], tree: Path, tmp_path: Path) -> None:
    check_contracts(tree)
    run_in_fork(tree, tmp_path / "out.txt", lambda: write_pages_and_train(tmp_path / "run"))


@pytest.mark.slow
@pytest.mark.parametrize("removed", [REMOVABLE], ids=["all"], indirect=True)
def test_all_tests_are_collected_without_the_folders(removed: list[str], tree: Path, tmp_path: Path) -> None:
    options = ["-p", "no:cacheprovider", "--collect-only", "-q", "-m", ""]
    collected = run_in_fork(tree, tmp_path / "out.txt", lambda: pytest.main(options))
    assert "tests/compat/test_contract.py" in collected
    assert not re.search(f"tests/compat/({'|'.join(removed)})/", collected)


LEFT_OUT = {
    "tests/test_documents.py": "the pages of the tree name trainers: their recipes, command lines and links",
}
"""Files and tests that need all folders, with the reason."""


@pytest.mark.slow
@pytest.mark.exhaustive
@pytest.mark.timeout(2400)
def test_suite_passes_without_any_folder(tmp_path: Path) -> None:
    """The default run of all other tests, after the generated pages are written for what is left."""
    tree = copy_tree(tmp_path / "tree")
    remove(tree, FOLDERS)
    for test in (tree / "tests" / "compat").glob("test_*.py"):
        test.unlink()  # what holds for every folder
    assert [path.name for path in (tree / "src" / "mezzotint" / "compat").iterdir()] == ["__init__.py"]
    check_contracts(tree)
    run_python(tree, tree / "tools" / "write_docs.py")
    ignored = [f"--{'deselect' if '::' in name else 'ignore'}={name}" for name in LEFT_OUT]
    run_python(tree, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:xdist", *ignored)
