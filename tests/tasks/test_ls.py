"""`mezzotint ls` lists names usable in recipes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from mezzotint.cli import main
from mezzotint.settings.reading.read import shipped_recipes
from mezzotint.tasks.ls import title


def test_ls_lists_names_usable_in_recipes(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "fox.yaml"
    file.write_text("# yaml-language-server: $schema=x.json\n#\n# Foxes, in ten minutes.\nrun: {name: fox}\n")
    monkeypatch.setattr("mezzotint.tasks.ls.shipped_recipes", lambda: {"fox": file})
    assert main(["ls"]) == 0
    text = capsys.readouterr().out
    assert "  fox  Foxes, in ten minutes.\n" in text
    for word in ("dialects\n", "runtimes\n", "tiny-sd "):
        assert word in text
    assert re.search(r"  mezzotint-mini +complete, with weights\n", text)
    assert main(["ls", "families", "formats"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("families\n  chroma  ")
    assert re.search(r"\n  ltx +LTX-Video of Lightricks", text)
    assert re.search(r"\n  sdxl +SDXL's base model and its refiner, read from", text), "without the paper's number"
    assert re.search(r"\n  metadata +captions in a table\n", text)
    assert all(len(line.split(maxsplit=1)) == 2 for line in text.splitlines() if line.startswith("  "))


def test_every_shipped_recipe_has_a_complete_title() -> None:
    cut = [name for name, path in shipped_recipes().items() if not title(path).endswith(".")]
    assert cut == []
