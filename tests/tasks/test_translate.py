"""`mezzotint translate`: usage, and values that read back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mezzotint.errors import RecipeError
from mezzotint.settings.reading import writing, yaml_rules
from mezzotint.tasks import translate

scalars = st.one_of(
    st.none(), st.booleans(), st.integers(-(10**9), 10**9), st.floats(allow_nan=False, allow_infinity=False),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
)  # fmt: skip


@pytest.mark.parametrize(
    ("words", "code", "hint"),
    [
        ([], "E1012", "name the dialect"),
        (["recipe.yaml"], "E1012", "-- THE LINE AS IT IS; got 1 name"),
        (["--as", "x"], "E1012", "--as needs the foreign command line after --"),
        (["--as", "--", "--a=1"], "E1012", "--as needs a value; write --as=NAME"),
        (["--", "--a=1"], "E1012", "-- needs --as NAME"),
        (["--as", "nobody", "--"], "E1015", "there is no 'nobody' among dialects"),
    ],
)
def test_wrong_translate_command_prints_usage(words: list[str], code: str, hint: str) -> None:
    with pytest.raises(RecipeError, match=r".") as caught:
        translate.run(words)
    assert caught.value.code == code
    assert hint in str(caught.value)


@given(st.dictionaries(st.sampled_from("abcdef"), scalars | st.lists(scalars, max_size=4), max_size=5))
def test_every_value_is_written_so_that_it_reads_back(values: dict[str, object]) -> None:
    tree = {"model": {"deep": dict(values)}} if values else {"model": {}}
    text = writing.as_yaml(tree, {"model.deep.a": "--flag\nwith a break"})
    document = yaml_rules.load(text, "written")
    assert document.problems == ()
    assert document.tree == tree
