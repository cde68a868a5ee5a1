"""Texts go between processes as bytes, whatever is in them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mezzotint.runtimes.shared import processes


@given(st.text())
def test_a_text_comes_back_as_it_went(text: str) -> None:
    assert processes._text_of(processes._bytes_of(text)) == text
