"""Operations on captions, and the lines of a text that they change."""

from __future__ import annotations

import pytest

from mezzotint.data.editing.caption_texts import edit_text
from mezzotint.data.editing.operations import Operation, count_tags, parse_operation
from mezzotint.errors import DatasetError
from mezzotint.settings.sections.captions import CaptionSettings


def operation(kind: str, **values: object) -> Operation:
    return parse_operation({"kind": kind, **values}, lambda: {"b": 3, "a": 3, "c": 1})


@pytest.mark.parametrize(
    ("chosen", "before", "after"),
    [
        (operation("set", text=" new \n"), "old", "new"),
        (operation("append", text=", fox"), "cat", "cat, fox"),
        (operation("append", text=", fox"), "", "fox"),
        (operation("prepend", text="a photo of "), "cat", "a photo of cat"),
        (operation("replace", text="cat", by=""), "cat, a cat", ", a"),
        (operation("add-tag", tag="x"), "a, b", "a, b, x"),
        (operation("add-tag", tag="b"), "a,b", "a,b"),
        (operation("add-tag-first", tag="x"), "a, b", "x, a, b"),
        (operation("remove-tag", tag="b"), "a,b , bb", "a, bb"),
        (operation("remove-tag", tag="a"), "a", ""),
        (operation("rename-tag", tag="a", to="c"), "a, b, c", "c, b"),
        (operation("trigger", tag="sks"), "dog, sks, red", "sks, dog, red"),
        (operation("trigger", tag="sks"), "sks, dog", "sks, dog"),
        (operation("sort-alphabet", keep=1), "z, C, b, a", "z, a, b, C"),
        (operation("sort-frequency"), "x, c, b, a", "a, b, c, x"),
    ],
)
def test_operations_change_a_caption(chosen: Operation, before: str, after: str) -> None:
    assert edit_text(before, chosen, CaptionSettings()) == after


@pytest.mark.parametrize(
    ("lines", "kind", "values", "after"),
    [
        ("first", "add-tag", {"tag": "x"}, "\r\na, x\r\n\r\nb\r\n"),
        ("random", "add-tag", {"tag": "x"}, "\r\na, x\r\n\r\nb, x\r\n"),
        ("join", "add-tag", {"tag": "x"}, "\r\na\r\n\r\nb, x\r\n"),
        ("join", "remove-tag", {"tag": "b"}, "a\r\n"),
        ("random", "set", {"text": "c\nd\ne"}, "c\r\nd\r\ne\r\n"),
        ("first", "set", {"text": "c"}, "\r\nc\r\n\r\nb\r\n"),
    ],
)
def test_other_lines_and_line_ends_stay(lines: str, kind: str, values: dict[str, str], after: str) -> None:
    settings = CaptionSettings.model_validate({"lines": lines})
    assert edit_text("\r\na\r\n\r\nb\r\n", operation(kind, **values), settings) == after


@pytest.mark.parametrize(
    "value",
    [{}, {"kind": "sett"}, {"kind": "append"}, {"kind": "append", "text": "a\nb"}, {"kind": "add-tag", "tag": "a, b"},
     {"kind": "add-tag", "tag": " "}, {"kind": "set", "text": 3}, {"kind": "sort-alphabet", "keep": "-1"}],
)  # fmt: skip
def test_other_forms_are_refused(value: dict[str, object]) -> None:
    with pytest.raises(DatasetError) as caught:
        parse_operation(value, dict)
    assert caught.value.code == "E1260"


def test_tags_are_counted_once_in_each_caption() -> None:
    assert count_tags(["a, a\na", "b,a,"]) == {"a": 2, "b": 1}
