"""Reading the words of a foreign command."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mezzotint.compat.kit import launchers, reading
from mezzotint.compat.kit.reading import Spec, Value

SPECS = {
    spec.flag: spec
    for spec in (
        Spec("steps", "whole"),
        Spec("rate", "number"),
        Spec("rate_warmup", "whole"),
        Spec("folder", "text"),
        Spec("kind", "text", ("cosine", "constant")),
        Spec("prompts", "texts"),
        Spec("flip", "switch"),
        Spec("flip_vertically", "switch"),
    )
}

SCRIPTS = ("train_text_to_image.py",)


def read(*words: str) -> dict[str, Value]:
    parsed = reading.parse(words, SPECS)
    assert parsed.problems == []
    return parsed.values


def problems(*words: str) -> list[tuple[str, str, str]]:
    return [(p.where, p.code, f"{p.message} {p.remedy}".strip()) for p in reading.parse(words, SPECS).problems]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--steps=3"], {"steps": 3}),
        (["--steps", "3"], {"steps": 3}),
        (["--rate", "1e-5"], {"rate": 1e-5}),
        (["--rate", "-0.5"], {"rate": -0.5}),
        (["--kind", "=", "cosine", "--flip"], {"kind": "cosine", "flip": True}),
        (["--flip", "=", "True", "--rate", "=", "-0.5"], {"flip": True, "rate": -0.5}),
        (["--steps", "-1", "--flip"], {"steps": -1, "flip": True}),
        (["--folder=a=b"], {"folder": "a=b"}),
        (["--folder", r"C:\images\new"], {"folder": r"C:\images\new"}),
        (["--prompts", "a cat", "", "--steps", "1"], {"prompts": ("a cat", ""), "steps": 1}),
        (["--prompts=a cat"], {"prompts": ("a cat",)}),
        (["--flip", "--steps=1"], {"flip": True, "steps": 1}),
        (["--flip", "True"], {"flip": True}),
        (["--flip=0", "--steps=1"], {"flip": False, "steps": 1}),
        (["--flip", "false"], {"flip": False}),
        (["--kind=cosine"], {"kind": "cosine"}),
        ([], {}),
    ],
)
def test_values_are_accepted_in_each_spelling(words: list[str], expected: dict[str, Value]) -> None:
    assert read(*words) == expected


def test_unambiguous_abbreviation_is_accepted_with_a_note() -> None:
    parsed = reading.parse(["--fold", "x", "--flip"], SPECS)
    assert parsed.values == {"folder": "x", "flip": True}, "a whole name is no abbreviation of a longer one"
    assert parsed.notes == [("folder", "written --fold")]
    assert problems("--rat", "1")[0] == ("--rat", "E1016", "may be --rate, --rate_warmup write it out")


def test_detached_equals_sign_is_noted_and_needs_a_value() -> None:
    assert reading.parse(["--kind", "=", "cosine"], SPECS).notes == [
        ("kind", "written --kind = cosine, is read as --kind=cosine")
    ]
    assert [where for where, _, _ in problems("--steps", "=", "--flip")] == ["--steps"]
    assert [where for where, _, _ in problems("--kind", "=")] == ["--kind"]


def test_last_of_two_values_wins_with_a_note() -> None:
    parsed = reading.parse(["--steps=1", "--steps=2"], SPECS)
    assert parsed.values == {"steps": 2}
    assert [flag for flag, _ in parsed.notes] == ["steps"]


def test_all_unknown_flags_are_reported_with_the_nearest_name() -> None:
    refused = problems(
        "--stepz", "3", "5", "--rate=fast", "stray", "--kind", "cosin", "--folder=", "--prompts", "-x", "1"
    )
    assert [(where, code) for where, code, _ in refused] == [
        ("--stepz", "E1016"), ("--rate", "E1017"), ("stray", "E1016"), ("--kind", "E1017"), ("--folder", "E1017"),
        ("--prompts", "E1017"), ("-x", "E1016"),
    ]  # fmt: skip
    output = {where: text for where, _, text in refused}
    assert "did you mean --steps?" in output["--stepz"]
    assert "did you mean cosine?" in output["--kind"]
    assert "variable" in output["--folder"]


@pytest.mark.parametrize(
    "words", [["--steps=1.5"], ["--steps=1e3"], ["--rate=nan"], ["--rate=inf"], ["--flip=2"], ["--folder=$MODEL_NAME"]]
)
def test_invalid_values_are_refused(words: list[str]) -> None:
    assert [code for _, code, _ in problems(*words)] == ["E1017"]


def test_value_of_a_switch_is_explained() -> None:
    [(where, code, message)] = problems("--flip", "3")
    assert (where, code) == ("3", "E1016")
    assert message == "is not a flag --flip is a switch, which takes no value; leave 3 out"


def test_missing_required_flag_is_reported_once() -> None:
    specs = {"model": Spec("model", "text", required=True)}
    assert [p.where for p in reading.parse([], specs).problems] == ["--model"]
    assert [p.message for p in reading.parse(["--model"], specs).problems] == ["has no value"]


def test_line_continuation_characters_are_dropped_with_a_note() -> None:
    words, notes = reading.drop_continuation_signs(["--a", "1", "\\", "--b", "^", "`", " ", r"C:\x", "--c="])
    assert words == ["--a", "1", "--b", r"C:\x", "--c="]
    assert len(notes) == 1
    assert reading.drop_continuation_signs(["--a", ""]) == (["--a", ""], [])


@given(st.lists(st.text(max_size=12), max_size=8))
def test_arbitrary_words_do_not_crash_the_reader(words: list[str]) -> None:
    cleaned, _ = reading.drop_continuation_signs(words)
    parsed = reading.parse(launchers.strip_launcher(cleaned, SCRIPTS).arguments, SPECS)
    assert set(parsed.values) <= set(SPECS)


@pytest.mark.parametrize("text", ["9" * 400, "-9223372036854775808"])
def test_huge_integer_is_refused(text: str) -> None:
    value, problem = reading.value_of(Spec(flag="seed", form="whole"), [text])
    assert value is None
    assert problem.startswith("must be below 2^63, got '")
