"""A folder is a registry."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import mezzotint
from mezzotint import registry
from mezzotint.errors import RecipeError


def test_names_are_the_modules_of_a_folder_without_base_and_private_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "kinds"
    folder.mkdir()
    for name in ("base.py", "_shared.py", "__init__.py", "image_folder.py", "csv.py", "notes.txt"):
        (folder / name).write_text("")
    monkeypatch.setattr(mezzotint, "__path__", [*mezzotint.__path__, str(tmp_path)])
    assert registry.names("kinds") == ("csv", "image-folder")


def test_a_folder_that_is_not_there_has_no_names() -> None:
    assert registry.names("no/such/folder") == ()


def test_listing_imports_nothing() -> None:
    code = (
        "import sys\nfrom mezzotint import registry\nassert 'sd' in registry.names('families')\n"
        "assert 'torch' not in sys.modules\nassert not [m for m in sys.modules if m.startswith('mezzotint.families')]"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_find_imports_the_module_behind_a_name() -> None:
    assert registry.find("tasks", "explain").__name__ == "mezzotint.tasks.explain"


@pytest.mark.parametrize(
    ("folder", "name", "words"),
    [
        ("runtimes", "dpp", "there is no 'dpp' among runtimes; did you mean ddp?"),
        ("families", "qqqq", "there is no 'qqqq' among families; known: latte"),
        ("runtimes", "base", "there is no 'base' among runtimes"),
        ("data/no_formats", "x", "there is no 'x' among no_formats; known: none"),
        ("families", "../recipe", "there is no '../recipe' among families"),
    ],
)
def test_an_unknown_name_answers_with_the_nearest(folder: str, name: str, words: str) -> None:
    with pytest.raises(RecipeError) as caught:
        registry.find(folder, name)
    assert caught.value.code == "E1010"
    assert words in str(caught.value)
