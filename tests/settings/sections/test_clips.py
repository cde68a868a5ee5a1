"""Frames of a clip, and the images beside it."""

from __future__ import annotations

import pytest

from support.contradictions import contradiction


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (["data.format=videofolder", "data.clips.frames=16"], "write 15 or 17"),
        (["data.format=videofolder", "data.clips.buckets=[[17, 64, 64], [17, 64, 64]]"], "a size is listed twice"),
        (["data.format=videofolder", "data.clips.buckets=[[5, 64, 64]]"], "write data.clips.frames=5"),
        (["data.format=videofolder", "data.clips.fps=8", "data.clips.interval=2"], "leave one of them out"),
        (["data.format=videofolder", "data.clips.fps=8", "data.clips.short=repeat"], "write data.clips.short=skip"),
        (["data.format=videofolder", "data.clips.images=4"], "data.clips.images_from is none"),
        (["data.format=videofolder", "data.clips.images_from=clips"], "set how many, such as images=4"),
        (
            ["data.format=videofolder", "data.clips.images=18", "data.clips.images_from=clips"],
            "more than a sample has frames",
        ),
        (["data.format=videofolder", "data.clips.images=2", "data.clips.images_from=images"], "give both or none"),
        (["data.format=videofolder", "data.clips.images_order=groups"], "leave them out"),
    ],
)
def test_conflicting_settings_are_refused_with_a_remedy(settings: list[str], sentence: str) -> None:
    assert sentence in contradiction(*settings)
