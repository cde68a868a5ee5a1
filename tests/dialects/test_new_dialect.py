"""A dialect that no list names: the file that docs/how-to-add.md shows is put into the folder; its line is translated
and trained."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import mezzotint.dialects
from mezzotint import registry
from mezzotint.cli import main
from mezzotint.dialects.base import Launched
from mezzotint.tasks.reading import foreign

PAGE = Path(__file__).parents[2] / "docs" / "how-to-add.md"


@pytest.fixture
def example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of the page as `dialects/example.py`, in a folder that belongs to the package for this test alone."""
    text = re.search(r"^```python run dialect\n(.*?)^```$", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    assert text is not None
    file = tmp_path / "dialects" / "example.py"
    file.parent.mkdir()
    file.write_text(text[1], "utf-8")
    inside = registry._modules

    def modules(folder: Path) -> list[tuple[str, Path]]:
        here = Path(mezzotint.dialects.__file__).parent
        return [*inside(folder), *([("example", here / "example.py")] if folder == here else [])]

    monkeypatch.setattr(registry, "_modules", modules)
    monkeypatch.setattr(mezzotint.dialects, "__path__", [*mezzotint.dialects.__path__, str(file.parent)])
    return file


@pytest.mark.usefixtures("example")
def test_a_file_in_the_folder_is_a_dialect_whose_line_is_translated_and_trained(
    world: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "example" in registry.names("dialects")
    line = ["python", "train.py", f"--model={world.model}", "--batch=2", "--fast"]
    read = foreign.reading("example", line, (), Launched(processes=2))
    assert (read.recipe.data.batch_size, read.origin["data.batch_size"]) == (4, "--batch")
    assert main(["translate", "--as", "example", "--", *line]) == 0
    assert f"path: {world.model}  # --model" in capsys.readouterr().out
    words = [word for word in world.words("run", run__steps=2)[1:] if not word.startswith(("model.path", "data.batch"))]
    assert main(["train", "--as", "example", *words, "--", *line]) == 0
    assert world.end("run").step == 2
    assert main(["check", "--as", "example", "--", "--modell=x"]) == 2
