"""A family outside the source tree: two files, as in `docs/how-to-add/family.md`."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mezzotint import outside
from mezzotint.cli import main
from mezzotint.errors import RecipeError
from mezzotint.settings.reading import paths
from mezzotint.settings.reading.read import read_text
from mezzotint.settings.recipe import Recipe
from mezzotint.settings.sections.model import ModelSettings
from mezzotint.weights.files.tensor_files import read_header
from support.installed import install

PAGE = (Path(__file__).parents[2] / "docs" / "how-to-add" / "family.md").read_text("utf-8")


def shown(words: str) -> str:
    """The file of the page that is marked so."""
    return PAGE.partition(f"```py {words}\n")[2].partition("```")[0]


@pytest.fixture
def dimmed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The two files of the family in another installed package, forgotten afterwards."""
    files = {"dimmed_facts.py": shown("family-facts"), "dimmed.py": shown("family")}
    groups = {"mezzotint.settings.families": {"dimmed": "dimmed_facts"}, "mezzotint.families": {"dimmed": "dimmed"}}
    install(tmp_path / "site", monkeypatch, files, groups)
    yield
    for name in ("dimmed", "dimmed_facts"):
        sys.modules.pop(name, None)
    ModelSettings.__pydantic_fields__.pop("dimmed", None)
    ModelSettings.model_rebuild(force=True)
    Recipe.model_fields["model"].default = ModelSettings()
    Recipe.model_rebuild(force=True)
    for cached in (paths.settings, paths.sections, paths.by_path):
        cached.cache_clear()


@pytest.mark.usefixtures("dimmed")
def test_family_of_another_package_is_listed_with_its_settings(capsys: Any) -> None:
    assert main(["ls", "families"]) == 0
    assert "dimmed from the package strangers 1.2" in " ".join(capsys.readouterr().out.split())
    recipe = read_text("schema: 1\nmodel: {family: dimmed, dimmed: {share: 0.25}}").recipe
    assert recipe.model_dump()["model"]["dimmed"] == {"share": 0.25}
    for line, why in (
        ("family: dimmed, clip_skip: 1", "model.clip_skip has no meaning for model.family=dimmed: its text comes"),
        ("family: sd, dimmed: {share: 0.1}", "model.dimmed has no meaning for model.family=sd: it belongs to family"),
        ("family: dimmed, dimmed: {shar: 0.1}", "did you mean"),
    ):
        with pytest.raises(RecipeError, match=why):
            read_text(f"schema: 1\nmodel: {{{line}}}")


@pytest.mark.usefixtures("dimmed")
def test_family_of_another_package_trains_exports_and_samples(world: Any, tmp_path: Path) -> None:
    index = world.model / "model_index.json"
    index.write_text(json.dumps(json.loads(index.read_text()) | {"_class_name": "DimmedPipeline"}))
    settings = {"model__family": "dimmed", "run__steps": 2, "run__preview__every": None}
    assert world.train("run", **settings) == 0
    losses = [line["loss"] for line in outside.read_lines(world.root / "run" / "metrics.jsonl") if "loss" in line]
    assert len(losses) == 2
    assert world.train("other", **settings, model__dimmed__share=1.0) == 0
    others = [line["loss"] for line in outside.read_lines(world.root / "other" / "metrics.jsonl") if "loss" in line]
    assert losses != others, "its own setting counts"
    exported = world.root / "run" / "exports" / "step-00000002"
    assert read_header(exported / "unet" / "diffusion_pytorch_model.safetensors")
    images = tmp_path / "images"
    assert main(["sample", str(world.root / "run"), "--prompt", "a red circle", "--out", str(images),
                 "sample.steps=2", "sample.size=[64, 64]"]) == 0  # fmt: skip
    assert list(images.rglob("*.png"))
