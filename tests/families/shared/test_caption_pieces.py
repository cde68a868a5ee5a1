"""Captions of more than 75 tokens: their pieces, as sd-scripts' `max_token_length` makes them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from mezzotint import registry
from mezzotint.families.shared import caption_pieces
from mezzotint.families.shared.stable import StableFamily
from mezzotint.settings.sections.model import ModelSettings
from mezzotint.weights.folder.model_folder import shipped_folder
from support.rounding import within

START, END = 100, 101


def padded(text: list[int], length: int, pad: int) -> torch.Tensor:
    return torch.tensor([[START, *text, END, *[pad] * (length - len(text) - 2)]])


@pytest.mark.parametrize("pad", [END, 0], ids=["padded with the end token", "padded with 0"])
def test_pieces_have_their_own_start_and_end(pad: int) -> None:
    def split(count: int) -> list[list[int]]:
        ids = padded(list(range(1, count + 1)), 8, pad)  # two pieces of three tokens
        return caption_pieces.split(ids, pieces=2, end=END, pad=pad).tolist()

    assert split(2) == [[START, 1, 2, END, pad], [START, END, pad, pad, pad]]
    assert split(3) == [[START, 1, 2, 3, END], [START, END, pad, pad, pad]]
    assert split(4) == [[START, 1, 2, 3, END], [START, 4, END, pad, pad]]
    assert split(5) == [[START, 1, 2, 3, END], [START, 4, 5, END, pad]]
    assert split(6) == [[START, 1, 2, 3, END], [START, 4, 5, 6, END]]


def test_states_of_pieces_are_between_the_first_start_and_the_last_end() -> None:
    states = torch.arange(20.0).reshape(4, 5, 1)  # two captions in two pieces
    joined = caption_pieces.join(states, 2)[..., 0]
    assert joined.tolist() == [[0, 1, 2, 3, 6, 7, 8, 9], [10, 11, 12, 13, 16, 17, 18, 19]]


@pytest.mark.parametrize("name", ["sd", "sdxl"])
def test_long_caption_is_encoded_in_pieces(name: str) -> None:
    kind = registry.find("families", name).Family

    def family(tokens: int) -> StableFamily:
        settings = ModelSettings(
            family=name, path=shipped_folder(f"tiny-{name}"), weights="random", caption_tokens=tokens
        )
        loaded = kind.of(
            settings, only=[part for part in ("text_encoder", "text_encoder_2") if part in kind.spec.parts]
        )
        assert isinstance(loaded, StableFamily)
        return loaded

    short, long = family(75), family(150)
    text = "cat " * 75 + "dog " * 40
    with torch.no_grad():
        whole = long.encode_text([text, "cat"])
        first, second = short.encode_text(["cat " * 75, "cat"]), short.encode_text(["dog " * 40, ""])
    assert whole.states.shape[:2] == (2, 152)
    within(whole.states[0, :76], first.states[0, :76], roundings=128)
    within(whole.states[0, 76:], second.states[0, 1:], roundings=128)
    within(whole.states[1, :76], first.states[1, :76], roundings=128)
    if whole.pooled is not None:
        assert first.pooled is not None
        within(whole.pooled, first.pooled, roundings=128)
    assert short.lost_tokens([text]) == (40,)
    assert long.lost_tokens([text]) == (0,)
    assert long.encode_text([]).states.shape[:2] == (0, 152)


def test_other_lengths_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="75, 150 or 225"):
        ModelSettings.model_validate({"caption_tokens": 100})
