"""Settings of the samples that exclude each other, or that a format does not look at."""

from __future__ import annotations

import pytest

from support.contradictions import contradiction


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (["data.path=[a, b]"], "takes one value; write several in the entries of data.sets"),
        (["data.buckets.shape=list"], "needs sizes"),
        (["data.buckets.sizes=sdxl"], "has no effect with data.buckets.shape=aspect"),
        (["data.buckets.shape=table", "data.resolution=520"], "has no sizes for data.resolution=520; write one of 256"),
        (["data.split=test"], "set data.format=metadata"),
        (["data.clips.frames=5"], "whose samples are images"),
        (["data.antialias=false"], "does not work with data.resize=lanczos"),
        (["data.cache.text=true", "data.captions.shuffle_tags=true"], "would be drawn only once"),
        (["data.resize=square-then-bilinear"], "is for clips in square buckets"),
        (["data.rating.fraction=0.5"], "give both or none"),
        (["data.holdout.path={loss: a}"], "is a reserved name in the logs"),
    ],
)
def test_conflicting_settings_are_refused_with_a_remedy(settings: list[str], sentence: str) -> None:
    assert sentence in contradiction(*settings)
