"""What may differ when a run goes on."""

from __future__ import annotations

from typing import Any

import pytest

from mezzotint.settings.reading.paths import settings
from mezzotint.settings.reading.read import read_text
from mezzotint.settings.recipe import Recipe
from mezzotint.settings.resume_rules import Difference, find_differences, find_unknown_allowances, sort_differences

BOTH = "model.train=[denoiser, text_encoder]"


def dumped(*overrides: str) -> dict[str, Any]:
    return recipe(*overrides).model_dump(mode="json", by_alias=True)


def recipe(*overrides: str) -> Recipe:
    return read_text("schema: 1", overrides=overrides).recipe


def test_equal_recipes_do_not_differ() -> None:
    assert find_differences(dumped("optim.lr=1e-6"), recipe("optim.lr=0.000001")) == ()


def test_each_rule_has_its_outcome() -> None:
    differing = find_differences(
        dumped(),
        recipe("data.workers=7", "run.precision=bf16", "optim.lr=1e-6", "run.seed=3", "sample.prompts=[a]"),
    )
    assert {d.path: d.change for d in differing} == {
        "data.workers": "free",
        "run.precision": "recorded",
        "optim.lr": "allow",
        "run.seed": "never",
        "sample.prompts": "free",
    }
    recorded, problems = sort_differences(differing, ())
    assert [d.path for d in recorded] == ["run.precision"]
    assert [(p.where, p.code) for p in problems] == [("optim.lr", "E1510"), ("run.seed", "E1511")]
    assert "run.allow_change=[optim.lr]" in problems[0].remedy
    assert "1e-06" in problems[0].message
    assert "1e-05" in problems[0].message
    assert problems[1].remedy == "restore it"


@pytest.mark.parametrize("word", ["optim.lr", "optim"])
def test_allowed_changes_are_recorded(word: str) -> None:
    recorded, problems = sort_differences(find_differences(dumped(), recipe("optim.lr=1e-6")), (word,))
    assert [d.path for d in recorded] == ["optim.lr"]
    assert problems == []
    assert str(recorded[0]) == "optim.lr: 1e-05 → 1e-06"


@pytest.mark.parametrize("word", ["optim.l", "opt", "optim.lr.x", "data", "optim.clip"])
def test_other_names_allow_nothing(word: str) -> None:
    _, problems = sort_differences(find_differences(dumped(), recipe("optim.lr=1e-6", "data.flip=0.5")), (word,))
    assert sorted(p.where for p in problems) == ["data.flip", "optim.lr"]


def test_allow_change_data_means_content_not_sections() -> None:
    changed = find_differences(dumped(), recipe("data.captions.dropout=0.1"))
    assert sort_differences(changed, ("data",))[1]
    assert sort_differences(changed, ("data.captions",))[1] == []


def test_settings_marked_never_cannot_be_allowed() -> None:
    _, problems = sort_differences(find_differences(dumped(), recipe("run.seed=1")), ("run", "run.seed"))
    assert [p.code for p in problems] == ["E1511"]


@pytest.mark.parametrize(
    ("old", "new", "changes"),
    [
        (["run.steps=10"], ["run.steps=20"], {"run.steps": "free"}),
        (["run.epochs=1"], ["run.epochs=2.5"], {"run.epochs": "free"}),
        ([], ["run.steps=2000"], {"run.steps": "free"}),
        ([], ["run.steps=1000"], {"run.steps": "free"}),
        ([], ["run.steps=999"], {"run.steps": "allow"}),
        (["run.steps=20"], ["run.steps=10"], {"run.steps": "allow"}),
        (["run.steps=10"], ["run.epochs=99"], {"run.steps": "allow", "run.epochs": "allow"}),
        (
            ["run.steps=10", "optim.schedule.kind=cosine"],
            ["run.steps=20", "optim.schedule.kind=cosine"],
            {"run.steps": "allow"},
        ),
        (
            ["run.steps=10", "optim.schedule.kind=cosine"],
            ["run.steps=20"],
            {"run.steps": "allow", "optim.schedule.kind": "allow"},
        ),
        *[
            (["run.steps=10", BOTH, word], ["run.steps=20", BOTH, word], {"run.steps": length})
            for word, length in {
                "optim.schedule.warmup_ratio=0.1": "allow",
                "optim.schedule.warmup_steps=5": "free",
                "optim.part_schedule.text_encoder.kind=linear": "allow",
                "optim.part_schedule.text_encoder.warmup_ratio=0.1": "allow",
                "optim.part_schedule.text_encoder.warmup_steps=3": "free",
                "optim.ema={rule: constant, strength: 0.1}": "allow",
                "optim.ema={rule: constant, decay: 0.1}": "free",
            }.items()
        ],
    ],
)
def test_extending_a_constant_rate_run_is_allowed(old: list[str], new: list[str], changes: dict[str, str]) -> None:
    assert {d.path: d.change for d in find_differences(dumped(*old), recipe(*new))} == changes


def test_settings_of_other_versions_are_default_or_recorded() -> None:
    old = dumped()
    del old["optim"]["clip"]
    old["optim"]["momentum"] = 0.9
    assert find_differences(old, recipe()) == (Difference("optim.momentum", 0.9, None, "recorded"),)
    assert [d.path for d in find_differences(old, recipe("optim.clip.norm=2"))] == ["optim.clip.norm", "optim.momentum"]


def test_every_differing_setting_is_found() -> None:
    now = recipe()
    for setting in settings():
        old = now.model_dump(mode="json", by_alias=True)
        here = old
        *above, last = setting.path.split(".")
        for word in above:
            here = here[word]
        here[last] = 4321 if setting.path in ("run.steps", "run.epochs") else "something else"
        (one,) = find_differences(old, now)
        assert (one.path, one.change) == (setting.path, setting.change)


def test_unknown_allow_change_names_suggest_the_nearest() -> None:
    assert find_unknown_allowances(["optim.lr", "optim", "data", "model", "data.captions"]) == []
    (problem,) = find_unknown_allowances(["optim.learning_rate"])
    assert problem.code == "E1001"
    assert "optim.lr" in problem.remedy


def test_random_seed_matches_any_recorded_seed() -> None:
    old = dumped("run.seed=12345")
    assert find_differences(old, recipe("run.seed=-1")) == ()
    assert [d.path for d in find_differences(old, recipe("run.seed=5"))] == ["run.seed"]
    assert [d.path for d in find_differences(dumped(), recipe("run.seed=12345"))] == ["run.seed"]
