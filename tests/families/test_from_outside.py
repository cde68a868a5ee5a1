"""A family that is in none of the tree's folders or lists: two files in a temporary place, as `docs/how-to-add.md`
writes them."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from installed import install

from mezzotint import outside
from mezzotint.cli import main
from mezzotint.errors import RecipeError
from mezzotint.recipe.reading import paths
from mezzotint.recipe.reading.read import read_text
from mezzotint.recipe.recipe import Recipe
from mezzotint.recipe.sections.model import ModelSettings
from mezzotint.weights.files.tensor_files import read_header

FACTS = '''
"""Facts of a family that reads its captions dimmed."""

from typing import Annotated

from mezzotint.recipe.base import NEVER, Section
from mezzotint.recipe.families.base import FamilySpec


class DimmedSettings(Section):
    """Of family `dimmed` alone."""

    share: Annotated[float, NEVER] = 0.5
    """How much of the text is left."""


SPEC = FamilySpec(
    name="dimmed",
    trains="models whose text is dimmed",
    called="a dimmed model",
    networks={"denoiser": "unet", "text_encoder": "clip_text", "vae": "vae"},
    folders={"denoiser": "unet", "text_encoder": "text_encoder", "vae": "vae"},
    tokenizers={"text_encoder": "tokenizer"},
    refuses={"clip_skip": "its text comes from the last layer"},
    settings=DimmedSettings,
    layout="sd",
    holds=lambda index, config: index.get("_class_name") == "DimmedPipeline",
)
'''
NETWORK = '''
"""The family `dimmed`: what computes."""

import dimmed_facts

from mezzotint.families.shared.stable import StableFamily
from mezzotint.families.shared.stable_files import StableFiles
from mezzotint.stages import Condition, TextEmbedding
from mezzotint.weights.layouts import sd


class Files(StableFiles):
    spec = dimmed_facts.SPEC
    layout = sd.LAYOUT

    def text_identity(self):
        return f"dimmed-text-1 {self.fingerprint('text_encoder')} {self.fingerprint('tokenizer')}"


class Family(StableFamily):
    spec = dimmed_facts.SPEC
    files = Files

    def __init__(self, files, parts):
        super().__init__(files, parts)
        self.share = files.settings.own(dimmed_facts.DimmedSettings).share

    def encode_text(self, captions):
        return TextEmbedding(self._part("text_encoder")(self._tokens("text_encoder", captions)[0]).last_hidden_state)

    def condition(self, text, batch, framing=None):
        return Condition(TextEmbedding(text.states * self.share))

    def predict(self, noised, condition):
        unet = self._part("denoiser")
        return unet(noised.model_input, noised.model_t, encoder_hidden_states=condition.text.states).sample
'''


@pytest.fixture
def dimmed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The two files of the family in another installed package, forgotten afterwards."""
    files = {"dimmed_facts.py": FACTS, "dimmed.py": NETWORK}
    groups = {"mezzotint.recipe.families": {"dimmed": "dimmed_facts"}, "mezzotint.families": {"dimmed": "dimmed"}}
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
def test_it_is_listed_and_its_settings_are_its_own(capsys: Any) -> None:
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
def test_it_trains_exports_and_draws(world: Any, tmp_path: Path) -> None:
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
    pictures = tmp_path / "pictures"
    assert main(["sample", str(world.root / "run"), "--prompt", "a red circle", "--out", str(pictures),
                 "sample.steps=2", "sample.size=[64, 64]"]) == 0  # fmt: skip
    assert list(pictures.rglob("*.png"))
