"""A data format of another package has settings of its own, found when a recipe names it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mezzotint.errors import RecipeError
from mezzotint.settings.formats import base as formats
from mezzotint.settings.reading import paths
from mezzotint.settings.reading.read import read_text
from mezzotint.settings.recipe import Recipe
from mezzotint.settings.sections.data import DataSettings
from support.installed import install

FACTS = '''
from typing import Annotated
from mezzotint.settings.base import ALLOW, Section
from mezzotint.settings.formats.base import FormatSpec

class Reels(Section):
    """With `data.format=reels`: which of them are seen."""

    newest: Annotated[int, ALLOW] = 1
    """How many, the newest first."""

def contradictions(data):
    if data.get_section(Reels).newest > data.batch_size:
        yield "data.reels.newest is more than data.batch_size"

SPEC = FormatSpec(settings=Reels, contradictions=contradictions)
'''


@pytest.fixture
def reels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    install(tmp_path / "site", monkeypatch, {"reels.py": FACTS}, {"mezzotint.settings.formats": {"reels": "reels"}})
    yield
    sys.modules.pop("reels", None)
    DataSettings.__pydantic_fields__.pop("reels", None)
    DataSettings.model_rebuild(force=True)
    Recipe.model_fields["data"].default = DataSettings()
    Recipe.model_rebuild(force=True)
    for cached in (paths.settings, paths.sections, paths.by_path, formats.format_spec):
        cached.cache_clear()


@pytest.mark.usefixtures("reels")
def test_external_format_has_its_own_settings() -> None:
    recipe = read_text("data: {format: reels, reels: {newest: 2}}").recipe
    assert recipe.model_dump()["data"]["reels"] == {"newest": 2}
    assert paths.sections()["data.reels"] == "With `data.format=reels`: which of them are seen."
    for line, why in (
        ("format: reels, reels: {newest: 9}", r"data\.reels\.newest is more than data\.batch_size"),
        ("format: kohya, reels: {newest: 2}", r"data\.reels has no effect without data\.format=reels"),
        ("format: reels, reels: {newst: 2}", r"did you mean data\.reels\.newest"),
    ):
        with pytest.raises(RecipeError, match=why):
            read_text(f"data: {{{line}}}")
