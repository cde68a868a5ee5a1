"""The example of docs/how-to-add/compat.md, installed as a package: its command is translated and trained."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from mezzotint import registry
from mezzotint.cli import main
from mezzotint.settings.reading.translation import Launched
from mezzotint.tasks.reading import foreign
from support.installed import install

PAGE = Path(__file__).parents[2] / "docs" / "how-to-add" / "compat.md"


@pytest.fixture
def example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file of the page in another installed package."""
    text = re.search(r"^```python run dialect\n(.*?)^```$", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    assert text is not None
    groups = {"mezzotint.dialects": {"example": "example_dialect"}}
    install(tmp_path / "site", monkeypatch, {"example_dialect.py": text[1]}, groups)


@pytest.mark.usefixtures("example")
def test_example_dialect_is_translated_and_trained(world: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert "example" in registry.names("dialects")
    assert main(["ls", "dialects"]) == 0
    assert "from the package strangers 1.2" in capsys.readouterr().out
    line = ["python", "train.py", f"--model={world.model}", "--batch=2", "--fast"]
    read = foreign.read_command_line("example", line, (), Launched(processes=2))
    assert (read.recipe.data.batch_size, read.origin["data.batch_size"]) == (4, "--batch")
    assert main(["translate", "--as", "example", "--", *line]) == 0
    assert f"path: {world.model}  # --model" in capsys.readouterr().out
    words = [word for word in world.words("run", run__steps=2)[1:] if not word.startswith(("model.path", "data.batch"))]
    assert main(["train", "--as", "example", *words, "--", *line]) == 0
    assert world.end("run").step == 2
    assert main(["check", "--as", "example", "--", "--modell=x"]) == 2
