"""Settings that belong to sections of this folder now: `mezzotint migrate` moves them there."""

from __future__ import annotations

import pytest

from mezzotint.errors import RecipeError
from mezzotint.settings.reading.read import read_text
from mezzotint.tasks.migrate import migrate


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (
            "model:\n  text_encoder: t5  # T5\n  path: a\n  max_tokens: 7\n",
            "model:\n  latte:\n    max_tokens: 7\n    text_encoder: t5  # T5\n  path: a\n",
        ),
        ("data:\n  clips:\n    missing: count\n", "data:\n  clip_list:\n    missing: count\n"),
        ("data: {clips: {missing: count, frames: 5}}\n", "data: {clip_list: {missing: count}, clips: {frames: 5}}\n"),
        (
            "objective: {loss: l1, variance: none}  # of both\nmodel:\n  path: a\n",
            "objective: {loss: l1}  # of both\nmodel:\n  latte:\n    variance: none\n  path: a\n",
        ),
        (
            "model: {latte: {rope: true}}\nobjective:\n  variance: none\n",
            "model: {latte: {variance: none, rope: true}}\n",
        ),
    ],
)
def test_setting_is_moved_to_its_new_section(old: str, new: str) -> None:
    assert migrate(old) == new


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("model:\n  text_encoder: a\n  latte: {text_encoder: b}\n", "remove model.text_encoder"),
        ("model:\n  text_encoder:\n    a\n", "move it there"),
    ],
)
def test_unmovable_setting_is_refused(text: str, message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        migrate(text)


def test_earlier_values_are_migrated_together_with_core_settings() -> None:
    assert migrate("data: {resize: open-sora-plan, clips: {start: open-sora-plan}}\n") == (
        "data: {resize: square-then-bilinear, clips: {start: not-last}}\n"
    )
    assert migrate("data: {clips: {start: anywhere}}\n") == "data: {clips: {start: random}}\n"


def test_unknown_key_names_its_section() -> None:
    with pytest.raises(RecipeError, match=r"it was renamed to model\.latte\.text_encoder"):
        read_text("model: {text_encoder: t5}")
