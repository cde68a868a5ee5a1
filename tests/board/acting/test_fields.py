"""The fields of the form: what is shown in them reads back as the same value."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mezzotint.board.acting.fields import field_of, word_of
from mezzotint.board.reading import values
from mezzotint.settings.reading._overrides import apply
from mezzotint.settings.reading.paths import by_path, settings
from mezzotint.settings.reading.read import read, shipped_recipes


def value_of(path: str, text: str) -> Any:
    """The value that a text in a field amounts to, as JSON."""
    applied = apply({}, [word_of(by_path()[path], text)])
    assert applied.problems == ()
    value: Any = applied.tree
    for word in path.split("."):
        value = value[word]
    return [value] if by_path()[path].shape.one_for_many and not isinstance(value, list) else value


@pytest.mark.parametrize("name", sorted(shipped_recipes()))
def test_field_text_parses_back_to_the_value_of_the_recipe(name: str) -> None:
    dumped = dict(values.flatten(read(name).recipe.model_dump(mode="json", by_alias=True)))
    for setting in settings():
        field = field_of(setting, dumped)
        assert field["value"] not in ("[]", "{}", "null"), setting.path
        if setting.path in dumped:
            assert value_of(setting.path, field["value"]) == dumped[setting.path], setting.path


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
        ("data.path", "photos", ["photos"]),
        ("data.path", "photos\n my pictures \n", ["photos", "my pictures"]),
        ("data.path", "", []),
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
        ("run.name", "", ""),
        ("run.save.every", "500 steps\n1 epochs", ["500 steps", "1 epochs"]),
        ("data.clips.buckets", "[[17, 256, 256]]", [[17, 256, 256]]),
    ],
)
def test_typed_text_becomes_a_value(path: str, text: str, value: Any) -> None:
    assert json.dumps(value_of(path, text)) == json.dumps(value)
