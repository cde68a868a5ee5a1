"""From plain values to a Recipe, or to everything that is wrong with them at once."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mezzotint import __version__
from mezzotint.errors import RecipeError
from mezzotint.settings.reading.paths import settings
from mezzotint.settings.reading.read import (
    read_text,
)
from support.messages import only_problem, problems_of

LATER = f"the recipe needs a later Mezzotint than this one ({__version__}); update Mezzotint"


def test_report_has_the_documented_form() -> None:
    text = "model:\n  family: sd\noptim:\n  accumulation: 2\n  lrr: 1\nrun:\n  name: x\ndata:\n  batch_size: 0\n"
    with pytest.raises(RecipeError) as caught:
        read_text(text, "sdxl.yaml")
    assert str(caught.value) == (
        "sdxl.yaml has 2 problems\n"
        "  line 5  optim.lrr        E1001 unknown key; did you mean optim.lr?\n"
        "  line 9  data.batch_size  E1007 must be greater than 0, got 0"
    )


def test_all_problems_are_reported_in_file_order() -> None:
    text = (
        "model:\n"
        "  train: [denoiser, text_encoder]\n"
        "optim:\n"
        "  lrr: 1\n"
        "  clip: {scope: prat}\n"
        "data:\n"
        "  batch_size: many\n"
        "  batch_size: 4\n"
        "  cache: {text: true}\n"
        "epochs: 3\n"
    )
    wrong = [(p.line, p.where, p.code) for p in problems_of(text, "run.seed=-2", "run.sed=3", "steps")]
    assert wrong == [
        (4, "optim.lrr", "E1001"),
        (5, "optim.clip.scope", "E1007"),
        (7, "data.batch_size", "E1002"),
        (8, "data.batch_size", "E1005"),
        (9, "data.cache.text", "E1003"),
        (10, "epochs", "E1001"),
        (None, "run.sed", "E1001"),
        (None, "steps", "E1008"),
        (None, "run.seed", "E1007"),
    ]


def test_cross_section_check_runs_despite_a_mistyped_key() -> None:
    wrong = problems_of("run: {steps: 10, epochs: 2}\noptim: {lrr: 1}\n")
    assert [p.code for p in wrong] == ["E1003", "E1001"]
    assert wrong[0].message == "run.steps and run.epochs are both set; give one of them"
    assert wrong[0].line == 1


def test_checks_ignore_unreadable_values() -> None:
    # part_lr is right or wrong according to model.train, which is unreadable here
    assert only_problem("model: {train: 5}\noptim: {part_lr: {text_encoder: 1.0}}\n").where.startswith("model.train")
    wrong = problems_of("model: {trian: [text_encoder]}\noptim: {part_lr: {text_encoder: 1.0}}\n")
    assert [p.where for p in wrong] == ["model.trian"]


@pytest.mark.parametrize(
    ("text", "where", "code", "what", "remedy"),
    [
        ("run: {tensorboard: no}", "run.tensorboard", "E1002", "must be true or false, got 'no'", "write false"),
        ("run: {tensorboard: 1}", "run.tensorboard", "E1002", "must be true or false, got 1", "write true"),
        ("optim: {lr: '1e-6'}", "optim.lr", "E1002", "must be a number, got '1e-6'", "write it without quotes"),
        ("run: {steps: true}", "run.steps", "E1002", "must be a whole number, got true", ""),
        ("run: {steps: 2.5}", "run.steps", "E1002", "must be a whole number, got 2.5", ""),
        ("optim: {lr: .nan}", "optim.lr", "E1002", "must be a finite number, got nan", ""),
        ("optim: {lr: -1}", "optim.lr", "E1007", "must be at least 0, got -1", ""),
        (
            "data: {resolution: 516}",
            "data.resolution",
            "E1007",
            "must be a multiple of 8, got 516; write 512 or 520",
            "",
        ),
        ("data: {flip: 1.5}", "data.flip", "E1007", "must be at most 1, got 1.5", ""),
        ("run: {seed: 9223372036854775808}", "run.seed", "E1007", "less than 9223372036854775808", ""),
        (
            "data: {crop: centre}",
            "data.crop",
            "E1007",
            "one of center, random, triangular, stretch, got 'centre'",
            "did you mean center?",
        ),
        ("schema: 2", "schema", "E1007", "must be 1, got 2", LATER),
        ("schema: 0", "schema", "E1007", "must be 1, got 0", "write `schema: 1`, or leave the line out"),
        ("data: {path: [5]}", "data.path", "E1002", "must be a path, got 5; put it in quotes", ""),
        ("run: {name: 7}", "run.name", "E1002", "must be a text, got 7; put it in quotes", ""),
        ("run: {name: ../x}", "run.name", "E1007", "letters, digits, dot, hyphen, underscore", ""),
        ("optim: {part_lr: {denoiser: -1}}", "optim.part_lr.denoiser", "E1007", "must be at least 0, got -1", ""),
        ("optim: {part_lr: 1}", "optim.part_lr", "E1002", "must be a mapping", ""),
        ("objective: 3", "objective", "E1002", "must be a group of settings, got 3", ""),
        ("objective:", "objective", "E1002", "there is nothing below this key", ""),
        ("sample: {size: [64]}", "sample.size", "E1002", "has too few entries, got 1", ""),
        ("sample: {size: [64, 64, 64]}", "sample.size", "E1002", "at most 2 entries, got 3", ""),
        ("sample: {size: [64, 65]}", "sample.size", "E1003", "multiples of 8, got 64 × 65", ""),
        ("run: {save: {every: 2 weeks}}", "run.save.every", "E1003", "got '2 weeks'", ""),
        ("data: {background: red}", "data.background", "E1003", "#rrggbb, got 'red'", ""),
        ("data: {resolution: 520}", "data.resolution", "E1003", "data.buckets.step (64); write 512 or 576", ""),
        ("optim: {schedule: {points: [[1, 2], [3, -4]]}}", "optim.schedule.points.1.1", "E1007", "got -4", ""),
    ],
)
def test_every_kind_of_mistake_has_a_plain_message(text: str, where: str, code: str, what: str, remedy: str) -> None:
    problem = only_problem(text)
    assert (problem.where, problem.code, problem.line) == (where, code, 1)
    assert what in problem.message
    assert problem.remedy == remedy
    assert "Input should" not in problem.message


def test_all_mistakes_in_a_list_are_reported() -> None:
    wrong = problems_of("sample:\n  prompts:\n    - 1\n    - fine\n    - 2\n")
    assert [(p.line, p.where, p.code) for p in wrong] == [
        (3, "sample.prompts.0", "E1002"),
        (5, "sample.prompts.2", "E1002"),
    ]


def test_report_of_many_problems_is_truncated() -> None:
    start = time.process_time()
    wrong = problems_of("".join(f"key{i}: 1\n" for i in range(5_000)))
    assert time.process_time() - start < 10.0  # of this process alone, whatever else the machine does
    assert len(wrong) == 51
    assert "4950 more" in wrong[-1].message


def test_key_below_a_setting_without_keys_is_unknown() -> None:
    with pytest.raises(RecipeError, match=r"data\.resolution\.a\.b\.c  E1001 unknown key"):
        read_text('schema: 1\ndata: {"resolution.a.b.c": 64}\n', "recipe.yaml")


def test_integral_floats_are_accepted_as_integers() -> None:
    assert read_text("run: {steps: 1e3}").recipe.run.steps == 1000


def test_unknown_keys_are_refused_in_every_section(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "mezzotint.settings.reading._problems.advice", lambda path: ""
    )  # what is meant is looked for elsewhere
    for setting in settings():
        section, _, name = setting.path.rpartition(".")
        path = f"{section}.{name}_zz".lstrip(".")
        text = "{" + ": {".join(path.split(".")) + ": 1" + "}" * len(path.split("."))
        assert only_problem(text).code == "E1001", path


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
        max_leaves=6,
    ),
    st.sampled_from([setting.path for setting in settings()]),
)
def test_any_value_is_accepted_or_refused_with_a_message(value: object, path: str) -> None:
    from mezzotint.settings.reading._problems import check

    tree: dict[str, object] = {}
    here = tree
    *above, last = path.split(".")
    for word in above:
        here = here.setdefault(word, {})  # type: ignore[assignment]
    here[last] = value
    recipe, issues = check(tree)
    assert (recipe is None) == bool(issues)
    assert not any("Input should" in issue.message or "pydantic" in issue.message for issue in issues)
