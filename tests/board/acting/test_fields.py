"""Fields of the form: their texts parse back to the same values."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mezzotint.board.acting.fields import field_of, word_of
from mezzotint.board.reading import values
from mezzotint.settings.reading.paths import by_path, settings
from mezzotint.settings.reading.read import read, read_text, shipped_recipes


@pytest.mark.parametrize("name", sorted(shipped_recipes()))
def test_field_texts_parse_back_to_the_recipe(name: str) -> None:
    dumped = dict(values.flatten(read(name).recipe.model_dump(mode="json", by_alias=True)))
    fields = {setting.path: field_of(setting, dumped)["value"] for setting in settings()}
    assert not {"[]", "{}", "null"} & set(fields.values())
    words = [word_of(by_path()[path], text) for path, text in fields.items() if path in dumped]
    parsed = read_text("schema: 1", overrides=words).recipe
    assert dict(values.flatten(parsed.model_dump(mode="json", by_alias=True))) == dumped


def test_every_closed_choice_lists_its_choices() -> None:
    defaults = {setting.path: setting.default for setting in settings()}
    for setting in settings():
        field = field_of(setting, defaults)
        if setting.shape.choices or setting.shape.base is bool:
            assert field["value"] in field["choices"], setting.path
    family, optimizer, solver, words = (
        field_of(by_path()[path], defaults)["choices"]
        for path in ("model.family", "optim.optimizer.kind", "sample.solver", "run.tf32")
    )
    assert {"sd", "sdxl", "flux"} <= set(family)
    assert "prodigy" in optimizer
    assert "heun" in solver
    assert words == ["auto", "true", "false"]
    assert "safetensors" in field_of(by_path()["run.export.file_format"], defaults)["choices"]
    assert field_of(by_path()["model.family"], {"model.family": "of-a-package"})["choices"][-1] == "of-a-package"


@pytest.mark.parametrize(
    ("path", "text", "value"),
    [
        ("data.path", "photos", "photos"),
        ("data.path", "", None),
        ("sample.prompts", 'a "fox", sitting\n[x]', ['a "fox", sitting', "[x]"]),
        ("sample.prompts", '["a fox", "two"]', ["a fox", "two"]),
        ("sample.guidance", "7,5", [7.5]),
        ("sample.guidance", "3, 7.5", [3, 7.5]),
        ("sample.size", "", None),
        ("sample.size", "64, 48", [64, 48]),
        ("optim.lr", "1,5", 1.5),
        ("optim.part_lr", "text_encoder: 0.002\ndenoiser: 1e-4", {"text_encoder": 0.002, "denoiser": 1e-4}),
        ("optim.part_lr", '{"text_encoder": 1}', {"text_encoder": 1}),
        ("model.tokens.words", "<wug>: a: b", {"<wug>": "a: b"}),
        ("model.tokens.words", "", {}),
        ("model.vae", "", None),
        ("sample.negative_prompt", "", ""),
        ("run.save.every", "500 steps\n1 epochs", ["500 steps", "1 epochs"]),
        ("data.clips.buckets", "[[17, 256, 256]]", [[17, 256, 256]]),
    ],
)
def test_typed_text_becomes_a_value(path: str, text: str, value: Any) -> None:
    others = REQUIRED.get(path, []) if value else []
    typed = read_text("schema: 1", overrides=[*others, word_of(by_path()[path], text)]).recipe
    assert typed == read_text("schema: 1", overrides=[*others, f"{path}={json.dumps(value)}"]).recipe


REQUIRED = {
    "optim.part_lr": ["model.train=[denoiser, text_encoder]"],
    "model.tokens.words": ["model.train=[tokens]"],
    "data.clips.buckets": ["data.format=videofolder"],
}
"""Settings without which a value is refused."""
