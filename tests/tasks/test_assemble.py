"""From a recipe to objects: incompatible settings are refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from torch._inductor.exc import InductorError

from mezzotint.errors import DatasetError
from mezzotint.settings.reading.read import read_text
from mezzotint.tasks import assemble
from support.messages import refused


def test_folder_with_only_cache_files_is_named(tmp_path: Path) -> None:
    recipe = read_text("schema: 1", overrides=[f"data.path={tmp_path}"]).recipe
    none = DatasetError("no images", code="E1202")
    assemble.refuse_cache(recipe, none)
    (tmp_path / "latents" / "abc").mkdir(parents=True)
    (tmp_path / "latents" / "abc" / "layout.json").write_text("{}")
    assemble.refuse_cache(recipe, DatasetError("captions are missing", code="E1203"))  # the folder has images
    with pytest.raises(DatasetError, match=r"is a cache of Mezzotint .*data\.cache\.path=") as caught:
        assemble.refuse_cache(recipe, none)
    assert caught.value.code == "E1110"


def test_compile_errors_are_explained_and_others_unchanged() -> None:
    failure = InductorError(ImportError("/tmp/x.so: file too short"), None)
    with refused("E1094", r"file too short.*run\.compile=false"), assemble.translate_shortage("no room", "lower it"):
        raise failure
    with pytest.raises(RuntimeError, match="shapes differ"), assemble.translate_shortage("no room", "lower it"):
        raise RuntimeError("shapes differ")
