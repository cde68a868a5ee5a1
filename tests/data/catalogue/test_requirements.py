"""A data set without masks or words that the recipe requires is refused with advice."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from mezzotint.data.catalogue import requirements
from mezzotint.data.media.colour import Conversion
from mezzotint.errors import DatasetError, RecipeError
from mezzotint.settings.sections.data import DataSettings


class Rows:
    """The part of a catalogue that is used. captions: of each row; masked: which rows have a mask."""

    roots = (Path("photos"),)

    def __init__(self, captions: list[str], masked: list[int]) -> None:
        digests = np.zeros((len(captions), 32), np.uint8)
        digests[masked] = 7
        self.overrides = SimpleNamespace(mask_digest=digests)
        self.set = np.zeros(len(captions), np.uint16)
        self.conversions = np.zeros(len(captions), np.uint16)
        self.conversions[masked] = Conversion.ALPHA
        self._captions = captions

    def __len__(self) -> int:
        return len(self._captions)

    def captions(self, row: int) -> tuple[str, ...]:
        return (self._captions[row],)


@pytest.mark.parametrize("source", ["files", "alpha"])
def test_masks_are_counted_among_the_rows_and_required(source: str) -> None:
    settings = DataSettings.model_validate({"mask": {"source": source}})
    rows: Any = Rows(["a", "b", "c"], masked=[0, 2])
    assert requirements.count_masks(rows, [0, 1], settings) == 1
    assert requirements.count_masks(rows, range(3), settings) == 2
    requirements.require_masks(rows, settings)
    none: Any = Rows(["a"], masked=[])
    with pytest.raises(DatasetError, match=f"photos: data.mask.source={source}, but no image") as caught:
        requirements.require_masks(none, settings)
    assert caught.value.code == "E1475"


def test_masks_are_not_required_without_the_setting() -> None:
    rows: Any = Rows(["a"], masked=[0])
    assert requirements.count_masks(rows, [0], DataSettings()) == 0
    requirements.require_masks(rows, DataSettings())


def test_required_word_must_be_in_a_caption_in_any_case() -> None:
    rows: Any = Rows(["a <Toy> on grass", "grass"], masked=[])
    requirements.require_learned_tokens(rows, [0, 1], ["<toy>", "grass"])
    with pytest.raises(RecipeError, match="no caption contains <toy>") as caught:
        requirements.require_learned_tokens(rows, [1], ["<toy>"])
    assert caught.value.code == "E1474"
    assert "add 'data.captions.trigger=<toy>'," in caught.value.message, "quoted for the shell"
