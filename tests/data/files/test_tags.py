"""Captions as lists of tags."""

from __future__ import annotations

from pathlib import Path

from mezzotint.data.files.tags import Tags, add_around
from mezzotint.stages import Sample

WEIGHTED = Tags("a dog", ("brown", "asleep"), (1.0, 0.5), limit=40)


def test_tag_list_round_trips_through_its_encoding() -> None:
    assert Tags.decoded(WEIGHTED.encoded()) == WEIGHTED
    assert (WEIGHTED.text, WEIGHTED.is_plain) == ("a dog, brown, asleep", False)
    assert Tags.of(" a dog ,brown,, asleep") == Tags("a dog", ("brown", "", "asleep"), (1.0, 1.0, 1.0))
    assert Tags.of("a dog, brown").is_plain
    assert not Tags("a, b", ("c",), (1.0,)).is_plain, "its text would be split elsewhere"
    assert Tags("", ("x", "y"), (1.0, 1.0)).text == "x, y"


def test_prefix_is_added_to_captions_and_main_text() -> None:
    sample = Sample("a", Path("a.png"), ("one", ""), overrides=(("flip", "0.5"), ("tags", WEIGHTED.encoded())))
    with_prefix = add_around(sample, "photo of", "")
    assert with_prefix.captions == ("photo of one", "photo of")
    assert with_prefix.overrides[0] == ("flip", "0.5")
    assert Tags.decoded(with_prefix.overrides[1][1]).main == "photo of a dog"
