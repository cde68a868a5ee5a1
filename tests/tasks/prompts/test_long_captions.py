"""Counting captions that are too long for the text encoder."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest
from PIL import Image

from mezzotint.data.catalogue.catalogue import build
from mezzotint.data.findings.captions import LostWords, of_lost_words
from mezzotint.settings.reading.read import read
from mezzotint.settings.sections.captions import CaptionSettings
from mezzotint.tasks.prompts import long_captions


def test_long_captions_of_large_datasets_are_estimated_from_a_sample(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(long_captions, "_LOOKED_AT", 10)
    seen: list[int] = []

    class Family:
        def lost_tokens(self, captions: list[str]) -> tuple[int, ...]:
            seen.append(len(captions))
            return tuple(max(0, len(caption.split()) + 2 - 77) for caption in captions)

    root = tmp_path / "images"
    root.mkdir()
    for number in range(60):
        Image.new("RGB", (48, 48), (number, 0, 0)).save(root / f"{number:02d}.png")
        (root / f"{number:02d}.txt").write_text("word " * (100 if number % 2 else 20 if number % 4 else 5))
    recipe = read("mini", [f"data.path={root}"]).recipe
    catalogue = build(recipe.data, tmp_path / "index", workers=1)
    lost = long_captions.count_truncated(cast(Any, Family()), catalogue, CaptionSettings())
    assert lost is not None
    assert seen == [2, 10], "one call for the limit, and none for captions that are short enough"
    assert lost.long == 45
    (finding,) = of_lost_words(catalogue, lost, CaptionSettings())
    assert finding.count == round(lost.cut * 4.5)
    assert "(estimated from 10 of the 45 longer ones)" in finding.sentence


def test_result_is_stored_by_everything_it_depends_on(tmp_path: Path) -> None:
    counts: list[int] = []

    class Family:
        def lost_tokens(self, captions: list[str]) -> tuple[int, ...]:
            counts.append(len(captions))
            return tuple(max(0, len(caption.split()) + 2 - 77) for caption in captions)

    root = tmp_path / "images"
    root.mkdir()
    for number in range(3):
        Image.new("RGB", (48, 48), (number, 0, 0)).save(root / f"{number}.png")
        (root / f"{number}.txt").write_text("word " * (100 + number))

    def lost(known_by: str) -> LostWords | None:
        catalogue = build(read("mini", [f"data.path={root}"]).recipe.data, tmp_path / "index", workers=1)
        return long_captions.count_truncated(cast(Any, Family()), catalogue, CaptionSettings(), known_by)

    first = lost("one tokenizer")
    assert first is not None
    assert (first.cut, len(counts)) == (3, 2)
    assert lost("one tokenizer") == first
    assert len(counts) == 2, "no tokenizer was used"
    assert lost("another") == first
    assert len(counts) == 4
    for path in (tmp_path / "index").rglob("memo.sqlite"):
        path.write_text("no database of ours")
    assert lost("one tokenizer") == first
    (root / "1.txt").write_text("a short one")
    changed = lost("one tokenizer")
    assert changed is not None
    assert changed.cut == 2
