"""Rows of the section `data` about folders that say how often, and about what becomes of a caption at each visit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Make = Callable[..., Any]


def said(fed: Any) -> list[str]:
    return [caption for batch in fed.batches() for caption in batch.captions]


# breaks if the folders' numbers did not reach the plan, or their words the captions
@pytest.mark.effect("data.format")
def test_format_kohya_takes_repeats_and_words_from_the_folders(feed: Make, noisy: Make, tmp_path: Path) -> None:
    noisy(tmp_path / "set" / "3_red fox", [(32, 32)])
    (tmp_path / "set" / "3_red fox" / "000.txt").unlink()
    noisy(tmp_path / "set" / "2_dog", [(32, 32)])
    assert Counter(said(feed(tmp_path / "set", format="kohya"))) == {"red fox": 3, "picture 0": 2}


# breaks if lines were joined, or another than the first were taken
@pytest.mark.effect("data.captions.lines")
def test_captions_lines_first_takes_the_first(feed: Make, noisy: Make, tmp_path: Path) -> None:
    folder = noisy(tmp_path / "one", [(32, 32)])
    (folder / "000.txt").write_text("\none, of tags\ntwo\n")
    assert said(feed(folder, captions__lines="first", steps=3)) == ["one, of tags"] * 3
