"""Settings that do not go together with what this trainer adds."""

from __future__ import annotations

import pytest

from support.contradictions import contradiction


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["data.format=clip-list", "data.clip_list.text_embeddings=true"], "set data.cache.text=true"),
        (["model.family=latte", "model.clip_skip=1"], "only its last layer is used"),
        (["data.format=videofolder", "data.clip_list.text_embeddings=true"], "without data.format=clip-list"),
        (["model.latte.max_tokens=77"], "it belongs to family latte"),
        (["model.latte.rope=true"], "it belongs to family latte"),
        (["model.family=latte", "model.latte.rope=true", "model.latte.compress_kv=2"], "exclude each other"),
    ],
)
def test_conflicting_settings_are_reported_with_a_remedy(settings: list[str], message: str) -> None:
    assert message in contradiction(*settings)
