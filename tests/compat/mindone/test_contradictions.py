"""Settings that do not go together with what this trainer adds."""

from __future__ import annotations

import pytest

from mezzotint.errors import RecipeError
from mezzotint.settings.reading.read import read_text
from support.contradictions import contradiction


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["data.format=mindone-cache", "data.mask.source=alpha"], "and data.format=mindone-cache has none"),
        (["run.runtime=fsdp", "run.export.optimizer_file=mindone"], "need whole tensors"),
    ],
)
def test_conflicting_settings_are_reported_with_a_remedy(settings: list[str], message: str) -> None:
    assert message in contradiction(*settings)


@pytest.mark.parametrize("setting", ["tag_dropout: 0.1", "wildcards: true"])
def test_caption_settings_conflict_with_a_cache(setting: str) -> None:
    with pytest.raises(RecipeError, match="has cropped images and fixed captions"):
        read_text(f"data: {{path: x, format: mindone-cache, captions: {{{setting}}}, cache: {{shuffles: 3}}}}")
