"""Common tests of all dialects: each flag has its row with the documented default, and changes only the settings that
it should. `support/dialect_cases/` has the expectations of each dialect."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from foreign_lines import ALONE, GONE, Lines, flat

from mezzotint import registry
from mezzotint.compat.kit import reading
from mezzotint.compat.kit.dialect import FOREIGN_DEFAULTS, Row
from mezzotint.errors import RecipeError
from mezzotint.settings.reading.paths import owner
from mezzotint.settings.reading.writing import as_yaml

PAGES = Path(__file__).parents[2] / "docs" / "reference" / "options"
ALL: list[Lines] = [
    importlib.import_module(f"dialect_cases.{name.replace('-', '_')}").LINES for name in registry.names("dialects")
]
every_dialect = pytest.mark.parametrize("lines", ALL, ids=lambda lines: lines.name)


def by_dialect(cases: Callable[[Lines], Iterator[tuple[object, Any]]], first: str = "") -> list[Any]:
    """Parameters of a test: a dialect with its cases. Cases that repeat those of another dialect are for `make slow`.
    cases: of a dialect, each with its identity across dialects. first: the dialect that comes before others."""
    parameters, shown = [], set[int]()
    for one in sorted(ALL, key=lambda lines: (lines.name != first, lines.name)):
        new, repeated = [], []
        for thing, case in cases(one):
            (repeated if id(thing) in shown else new).append(case)
            shown.add(id(thing))
        if new:
            parameters.append(pytest.param(one, new, id=one.name))
        if repeated:
            parameters.append(pytest.param(one, repeated, id=f"{one.name}-repeated", marks=pytest.mark.slow))
    return parameters


def flags(kind: Callable[[Row], Any]) -> list[Any]:
    """The flags of each dialect whose rows are of a kind."""
    return by_dialect(lambda one: ((row, row.flag) for row in one.dialect.rows if kind(row)))


acting = pytest.mark.parametrize(
    ("lines", "flags"), by_dialect(lambda one: ((case, flag) for flag, case in one.acts.items()), first="diffusers-sd")
)


@every_dialect
def test_each_flag_has_one_row_with_its_documented_default(lines: Lines) -> None:
    assert len(lines.rows) == len(lines.dialect.rows)
    assert {flag: row.default for flag, row in lines.rows.items()} == {**lines.defaults, **lines.later}
    assert not lines.later or lines.later.keys() == {flag for flag, row in lines.rows.items() if row.since}


@every_dialect
def test_each_row_names_existing_settings_and_has_a_description(lines: Lines) -> None:
    page = (PAGES / f"{lines.name}.md").read_text("utf-8")
    for row in [*lines.dialect.rows, *(row for table in lines.dialect.tables for row in table.rows)]:
        assert row.about, row.flag
        assert f"{row.flag}`" in page, row.flag
        assert bool(row.to) == (row.outcome in ("mapped", "computed")), row.flag
        assert row.outcome != "mapped" or len(row.to) == 1, row.flag
        for path in (*row.to, *row.fixed):
            assert owner(path) is not None, f"{row.flag} names {path}"


@every_dialect
def test_minimal_command_equals_the_documented_defaults(lines: Lines) -> None:
    first, again = lines.translate(), lines.translate()
    assert flat(first.settings) == {**FOREIGN_DEFAULTS, **lines.settings}, (
        "common defaults of other trainers, and those of the command"
    )
    assert as_yaml(first.settings, first.origin) == as_yaml(again.settings, again.origin)
    assert first.notes == again.notes
    assert lines.recipe().model.family == first.settings["model"]["family"]
    with_script = lines.dialect.translate(["python", lines.dialect.scripts[0], *lines.barest], ALONE)
    assert with_script.settings == first.settings


@every_dialect
def test_each_acting_flag_has_a_case(lines: Lines) -> None:
    acts = {flag for flag, row in lines.rows.items() if row.outcome in ("mapped", "computed")}
    assert {*lines.acts, *lines.elsewhere} == acts


@acting
def test_flag_changes_only_its_settings(lines: Lines, flags: list[str]) -> None:
    lines.write_files()
    for flag in flags:
        words, expected = lines.acts[flag]
        beside = lines.beside.get(flag, ())
        assert lines.changed(*words, beside=beside) == expected, flag
        origin = lines.translate(*beside, *words).origin
        for path, value in expected.items():
            assert value == GONE or re.match(r"(default of )?--|(default of )?\S+ in ", origin[path]), (flag, path)


@acting
def test_settings_of_a_flag_are_a_valid_recipe(lines: Lines, flags: list[str]) -> None:
    lines.write_files()
    for flag in flags:
        words = (*lines.beside.get(flag, ()), *lines.acts[flag][0])
        recipe = flat(lines.recipe(*words).model_dump(mode="json", by_alias=True))
        for path, value in flat(lines.translate(*words).settings).items():
            written = str(value) if isinstance(recipe[path], str) and not isinstance(value, str) else value
            if isinstance(written, str):
                written = re.sub(r"^1 (epoch|step)s$", r"1 \1", written.removeprefix("./"))
            assert recipe[path] in (written, [written]), (flag, path)  # one value may be written for a list


@pytest.mark.parametrize(("lines", "flags"), flags(lambda row: row.outcome == "without effect"))
def test_flag_without_effect_changes_nothing_and_is_noted(lines: Lines, flags: list[str]) -> None:
    barest = lines.notes()
    for flag in flags:
        row = lines.rows[flag]
        if row.choices == (row.default,):
            assert lines.refusal(f"--{flag}=other") == [(f"--{flag}", "E1017")]
            continue
        others = [choice for choice in row.choices if choice != row.default] or ["7"]
        word = f"--{flag}={not row.default if row.form == 'switch' else others[0]}"
        assert lines.changed(word) == {}, word
        assert f"--{flag}: {row.about}" in lines.notes(word)
        assert f"--{flag}: {row.about}" not in barest


@pytest.mark.parametrize(("lines", "flags"), flags(lambda row: row.outcome == "refused"))
def test_refused_flag_is_an_error_with_a_reason(lines: Lines, flags: list[str]) -> None:
    for flag in flags:
        row = lines.rows[flag]
        word = f"--{flag}" if row.form == "switch" else f"--{flag}=77123"
        with pytest.raises(RecipeError) as caught:
            lines.translate(word)
        assert [(p.where, p.code, p.message) for p in caught.value.problems] == [(f"--{flag}", "E1018", row.about)]
        assert "77123" not in str(caught.value), "it may be a secret"


@pytest.mark.parametrize(("lines", "flags"), flags(lambda row: row.outcome == "waits"))
def test_waiting_flag_is_an_error_that_names_the_feature(lines: Lines, flags: list[str]) -> None:
    for flag in flags:
        row = lines.rows[flag]
        others = [choice for choice in row.choices if choice != row.default] or ["7"]
        word = f"--{flag}={not row.default if row.form == 'switch' else others[0]}"
        with pytest.raises(RecipeError) as caught:
            lines.translate(word)
        [problem] = caught.value.problems
        assert (problem.where, problem.code, problem.remedy) == (f"--{flag}", "E1018", "leave it out")
        assert problem.message == f"needs {row.feature}, which Mezzotint does not have yet"


@every_dialect
def test_impossible_values_are_reported_by_flag(lines: Lines) -> None:
    for words, where, *code in lines.impossible:
        [(named, output)] = lines.refusal(*words)
        assert named == where, words
        assert not code or output == code[0], words


@pytest.mark.parametrize(("lines", "flags"), flags(lambda row: row.choices))
def test_flag_accepts_only_its_choices(lines: Lines, flags: list[str]) -> None:
    for flag in flags:
        row = lines.rows[flag]
        assert row.default is None or row.default in row.choices, flag
        assert {*row.values} <= {*row.choices, None}, flag
        assert lines.refusal(f"--{flag}=nonesuch") == [(f"--{flag}", "E1017")]


@every_dialect
def test_empty_value_is_refused_unless_the_flag_allows_it(lines: Lines) -> None:
    texts = [row for row in lines.dialect.rows if row.form == "text" and not row.may_be_empty]
    with pytest.raises(RecipeError) as caught:
        lines.dialect.translate([f"--{row.flag}=" for row in texts], ALONE)
    empty = {p.where for p in caught.value.problems if p.code == "E1017" and p.message.startswith("has an empty value")}
    assert empty == {f"--{row.flag}" for row in texts}


@every_dialect
def test_unknown_flag_names_the_nearest_and_prefixes_are_accepted(lines: Lines) -> None:
    flag = next(f for f in lines.rows if len(f) > 8 and not any(o != f and o.startswith(f[:-2]) for o in lines.rows))
    with pytest.raises(RecipeError, match=rf"--{flag}z +E1016 unknown flag; did you mean --{flag}\?"):
        lines.translate(f"--{flag}z=1")
    words = [f"--{flag[:-2]}", *(["none"] if lines.rows[flag].form != "switch" else [])]
    parsed = reading.parse(words, {row.flag: row for row in lines.dialect.rows})
    assert parsed.notes == [(flag, f"written --{flag[:-2]}")]


@every_dialect
def test_other_scripts_are_refused_and_a_renamed_script_is_noted(lines: Lines) -> None:
    dialect = lines.dialect
    assert dialect.other_scripts
    for script, why in dialect.other_scripts.items():
        with pytest.raises(RecipeError, match=re.escape(f"{script} {why}")) as caught:
            dialect.translate(["python", script, *lines.barest], ALONE)
        assert caught.value.code == "E1018"
    renamed = dialect.translate(["python", "my_own.py", *lines.barest], ALONE)
    assert any(f"my_own.py is read as {dialect.scripts[0]}" in str(note) for note in renamed.notes)
    assert renamed.settings == lines.translate().settings
