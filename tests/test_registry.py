"""Folders as registries of names, and names from other packages."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from mezzotint import registry
from mezzotint.cli import main
from mezzotint.errors import RecipeError
from support.installed import install


def test_names_are_the_public_modules_of_a_folder_without_base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "kinds"
    folder.mkdir()
    for name in ("base.py", "_shared.py", "__init__.py", "image_folder.py", "csv.py", "notes.txt"):
        (folder / name).write_text("")
    monkeypatch.setattr(registry, "_ROOT", tmp_path)
    assert registry.names("kinds") == ("csv", "image-folder")


def test_compat_folder_registers_its_entry_points(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = ModuleType("mezzotint.compat.of_nobody")
    trainer.ENTRY_POINTS = {"mezzotint.kinds": {"far-off": "mezzotint.errors"}}  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, trainer.__name__, trainer)
    (tmp_path / "compat" / "of_nobody").mkdir(parents=True)
    (tmp_path / "compat" / "of_nobody" / "__init__.py").touch()
    monkeypatch.setattr(registry, "_ROOT", tmp_path)
    assert registry.names("kinds") == ("far-off",)
    assert registry.find("kinds", "far_off").__name__ == "mezzotint.errors"


def test_missing_folder_has_no_names() -> None:
    assert registry.names("no/such/folder") == ()


def test_listing_imports_nothing() -> None:
    code = (
        "import sys\nfrom mezzotint import registry\nassert 'sd' in registry.names('families')\n"
        "assert 'torch' not in sys.modules\nassert not [m for m in sys.modules if m.startswith('mezzotint.families')]"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_find_imports_the_module_of_a_name() -> None:
    assert registry.find("tasks", "explain").__name__ == "mezzotint.tasks.explain"


@pytest.mark.parametrize(
    ("folder", "name", "words"),
    [
        ("runtimes", "dpp", "there is no 'dpp' among runtimes; did you mean ddp?"),
        ("families", "qqqq", "there is no 'qqqq' among families; known: chroma"),
        ("runtimes", "base", "there is no 'base' among runtimes"),
        ("data/no_formats", "x", "there is no 'x' among no_formats; known: none"),
        ("families", "../recipe", "there is no '../recipe' among families"),
    ],
)
def test_unknown_name_suggests_the_nearest(folder: str, name: str, words: str) -> None:
    with pytest.raises(RecipeError) as caught:
        registry.find(folder, name)
    assert caught.value.code == "E1010"
    assert words in str(caught.value)


# --- other packages ---------------------------------------------------------------------------------------------------

GROUPS = {
    "mezzotint.families": {"sd": "thief"},
    "mezzotint.formats": {"torn": "torn_format"},
    "mezzotint.dialects": {"gone": "nowhere.dialect"},
    "mezzotint.optimizers": {"torn": "torn_format"},
    "mezzotint.settings.optimizers": {"torn": "torn_format"},
    "mezzotint.callbacks": {"torn": "torn_format", "quits": "quits", "loud": "loud"},
}
"""One of our own names, a module that fails on import, and a missing module."""


@pytest.fixture
def broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {"torn_format.py": "raise ImportError('half an upload')\n", "thief.py": "raise SystemExit\n"}
    files |= {"quits.py": "import sys\nsys.exit(0)\n", "loud.py": "print('hello from a package')\n"}
    install(tmp_path / "site", monkeypatch, files, GROUPS)


@pytest.mark.usefixtures("broken")
def test_broken_package_is_named_and_others_still_work(world: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ls"]) == 0
    listed = capsys.readouterr().out
    assert listed.count("torn") == 3
    assert listed.count("from the package strangers 1.2\n") == 5
    assert "from the package strangers 1.2, whose module nowhere is missing" in listed
    assert registry.find("families", "sd").__name__ == "mezzotint.families.sd", "our own name takes precedence"
    assert world.train("run", run__steps=1) == 0
    capsys.readouterr()
    assert world.train("torn", run__steps=1, data__format="torn") == 2
    errors = capsys.readouterr().err
    assert "error[E1163]: torn comes from the package strangers 1.2, and its module torn_format cannot" in errors
    assert "half an upload" in errors
    assert main(["translate", "--as", "gone", "--", "--x"]) == 2
    assert "E1163" in capsys.readouterr().err


@pytest.mark.usefixtures("broken")
def test_package_cannot_exit_a_command_or_write_to_its_output(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(RecipeError, match=r"quits comes from the package strangers 1\.2.*SystemExit") as caught:
        registry.find("training/callbacks", "quits")
    assert caught.value.code == "E1163"
    registry.find("training/callbacks", "loud")
    output = capsys.readouterr()
    assert output.out == ""
    assert "hello from a package" in output.err


@pytest.mark.usefixtures("broken")
def test_packages_are_imported_only_when_requested() -> None:
    assert "torn" in registry.names("data/formats")
    assert "torn" not in registry.names("data/formats", skip_unimported=True)
    assert registry.about("training/callbacks")["torn"] == "from the package strangers 1.2"
    assert "torn_format" not in sys.modules
