"""The pages of the recipe reference are current and complete."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import recipe_pages
from mezzotint.settings.reading.paths import settings

DOCS = Path(__file__).parents[2] / "docs"


def test_reference_pages_have_every_setting() -> None:
    folder = DOCS / "reference" / "recipe"
    pages = recipe_pages.pages()
    assert {path.name: path.read_text(encoding="utf-8") for path in folder.iterdir()} == pages, "run: make docs"
    for row in settings():
        assert [f"| `{row.path}` |" in page for page in pages.values()].count(True) == 1, row.path


def test_large_subsection_has_its_own_page_in_the_index(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pages = recipe_pages.pages()
    assert "| `data.captions.dropout` |" in pages["data-captions.md"]
    assert "| `data.repeats` |" in pages["data.md"]
    assert set(re.findall(r"\(([\w-]+\.md)\)", pages["README.md"])) == pages.keys() - {"README.md"}
    monkeypatch.setattr(recipe_pages, "LARGE", 10**6)
    assert "data-captions.md" not in recipe_pages.pages()
