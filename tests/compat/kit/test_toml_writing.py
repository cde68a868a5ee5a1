"""Values as TOML: every tree reads back, and tables come after the keys of the table that has them."""

from __future__ import annotations

import tomllib
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from mezzotint.compat.kit.toml_writing import write_toml

scalars = st.one_of(
    st.booleans(), st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=9),
)  # fmt: skip
names = st.text("abc_-", min_size=1, max_size=3)
tables = st.recursive(
    st.dictionaries(names, scalars | st.lists(scalars, max_size=3), max_size=3),
    lambda inner: st.dictionaries(names, scalars | inner | st.lists(inner, min_size=1, max_size=2), max_size=3),
    max_leaves=8,
)


@given(tables)
def test_every_tree_reads_back(tree: dict[str, Any]) -> None:
    assert tomllib.loads(write_toml(tree)) == tree


def test_tables_have_headers_after_the_keys_of_their_parent() -> None:
    sets = [{"subsets": [{"image_dir": "C:\\a"}], "resolution": [512, 768]}]
    text = '[general]\nflip = true\n\n[[sets]]\nresolution = [512, 768]\n\n[[sets.subsets]]\nimage_dir = "C:\\\\a"\n'
    assert write_toml({"general": {"flip": True}, "sets": sets}) == text
