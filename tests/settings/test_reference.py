"""The reference is read off the sections, and the files in docs/ are equal to it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest

from mezzotint.errors import RecipeError
from mezzotint.settings import reference
from mezzotint.settings.reading.paths import sections, settings
from mezzotint.settings.reading.read import shipped_recipes
from mezzotint.settings.reading.yaml_rules import load
from mezzotint.settings.recipe import Recipe

DOCS = Path(__file__).parents[2] / "docs"


def test_every_leaf_of_a_dumped_recipe_has_a_row() -> None:
    def leaves(tree: dict[str, object], prefix: str = "") -> set[str]:
        paths = set()
        for key, value in tree.items():
            path = prefix + key
            paths |= leaves(value, path + ".") if isinstance(value, dict) and path in sections() else {path}
        return paths

    paths = [row.path for row in settings()]
    dumped = leaves(Recipe().model_dump(mode="json", by_alias=True))
    assert dumped <= set(paths)
    # the settings of optimizers that are not the default one
    assert {path.rpartition(".")[0] for path in set(paths) - dumped} <= {"optim.optimizer"}
    assert len(paths) == len(set(paths))


def test_every_row_has_help_a_type_and_a_rule() -> None:
    for row in settings():
        assert row.help.endswith((".", ")")), row.path
        assert reference.describe_type(row.shape), row.path
        assert row.change in reference.ON_RESUME, row.path


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("optim.lr", ["number at least 0", "default 1e-05", "run.allow_change", "The peak learning rate."]),
        ("run.seed", ["below 2^63", "start a new run"]),
        ("model.prediction", ["one of epsilon, v, edm, v-edm, epsilon-unscaled, or null", "default null"]),
        ("data.resolution", ["whole number at least 16, at most 4096, multiple of 8"]),
        ("data.resolution", ["multiple of 8, or a list of them"]),
        ("optim.optimizer.betas", ["number at least 0, below 1, number at least 0, below 1"]),
        ("optim.part_lr.text_encoder", ["mapping from name to number"]),
        ("run.save.every", ["interval such as", "default 500 steps", "may change"]),
        ("data.cache", ["data.cache.latents", "data.cache.crops"]),
        ("recipe", ["schema", "optim.lr", "run.save.keep"]),
    ],
)
def test_explain_prints_type_default_and_rule(path: str, words: list[str]) -> None:
    text = reference.explain(path)
    for word in words:
        assert word in text
    assert max(map(len, text.splitlines())) <= 100


@pytest.mark.parametrize(("path", "meant"), [("optim.lrr", "optim.lr"), ("optm", "optim"), ("data.flp", "data.flip")])
def test_explain_suggests_the_nearest(path: str, meant: str) -> None:
    with pytest.raises(RecipeError) as caught:
        reference.explain(path)
    assert caught.value.code == "E1013"
    assert f"did you mean {meant}?" in str(caught.value)


def test_schema_accepts_what_the_reader_accepts() -> None:
    schema = reference.json_schema()
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert schema["title"] == "Mezzotint recipe"
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    good: list[dict[str, Any]] = [
        {},
        {"schema": 1, "data": {"path": "photos", "repeats": 2.5}, "model": {"train": "denoiser"}},
        {"data": {"sets": [{"path": "a", "repeats": 2}, {"path": "b"}]}, "sample": {"size": [64, 64]}},
        {"run": {"save": {"every": "2 epochs"}, "steps": None}, "optim": {"part_lr": {"denoiser": 1e-4}}},
        Recipe().model_dump(mode="json", by_alias=True),
    ]
    bad: list[dict[str, Any]] = [
        {"learning_rate": 1},
        {"optim": {"learning_rate": 1}},
        {"optim": {"lr": "fast"}},
        {"data": {"batch_size": 0}},
        {"data": {"crop": "centre"}},
        {"sample": {"size": [1, 2, 3]}},
        {"schema": 2},
        {"run": {"save": {"every": "2 weeks"}}},
    ]
    for tree in good:
        assert list(validator.iter_errors(tree)) == []
    for tree in bad:
        assert list(validator.iter_errors(tree)), tree


def test_schema_objects_refuse_unknown_keys() -> None:
    schema = reference.json_schema()
    for definition in (schema, *schema["$defs"].values()):
        assert definition["additionalProperties"] is False
        for name, field in definition["properties"].items():
            named = schema["$defs"].get(field.get("$ref", "").rpartition("/")[2], {})
            assert field.get("description") or named.get("description"), name


def test_shipped_recipes_match_the_schema() -> None:
    validator = jsonschema.Draft202012Validator(reference.json_schema())
    for path in shipped_recipes().values():
        assert list(validator.iter_errors(load(path.read_text(encoding="utf-8"), path.name).tree)) == [], path


def test_schema_file_is_current() -> None:
    text = (DOCS / "recipe.schema.json").read_text(encoding="utf-8")
    assert json.loads(text) == reference.json_schema(), "run: mezzotint schema > docs/recipe.schema.json"
    assert text == reference.json_schema_text()
