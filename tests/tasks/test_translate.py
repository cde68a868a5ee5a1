"""`mezzotint translate`: usage, and values that read back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mezzotint.errors import RecipeError
from mezzotint.settings.reading import writing, yaml_rules
from mezzotint.settings.reading.translation import WrittenRecipe
from mezzotint.tasks import translate

scalars = st.one_of(
    st.none(), st.booleans(), st.integers(-(10**9), 10**9), st.floats(allow_nan=False, allow_infinity=False),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
)  # fmt: skip


@pytest.mark.parametrize(
    ("words", "code", "hint"),
    [
        ([], "E1012", "name the dialect"),
        (["recipe.yaml"], "E1012", "name the dialect"),
        (["--to=ai-toolkit"], "E1012", "no recipe is given"),
        (["data.path=photos", "--to=ai-toolkit"], "E1012", "no recipe is given"),
        (["mini", "--to=nobody"], "E1015", "there is no 'nobody' among dialects"),
        (["mini", "--as=everydream2", "--", "--lr=1"], "E1012", "--as has no recipe and no --out without --to"),
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


def test_command_with_options_comes_before_its_files() -> None:
    written = WrittenRecipe(("train.py", "--lr=1", "--sets=a.toml"), {"a.toml": "x = 1\n"}, ())
    text = translate.format_written(written, "mini", "other")
    assert text == "# from mini, by mezzotint translate --to=other\ntrain.py --lr=1 --sets=a.toml\n\n# a.toml\nx = 1\n"


@given(st.dictionaries(st.sampled_from("abcdef"), scalars | st.lists(scalars, max_size=4), max_size=5))
def test_every_value_is_written_so_that_it_reads_back(values: dict[str, object]) -> None:
    tree = {"model": {"deep": dict(values)}} if values else {"model": {}}
    text = writing.as_yaml(tree, {"model.deep.a": "--flag\nwith a break"})
    document = yaml_rules.load(text, "written")
    assert document.problems == ()
    assert document.tree == tree
