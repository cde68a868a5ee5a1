"""What of an adapter's settings excludes another."""

from __future__ import annotations

import pytest

from support.contradictions import contradiction


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (
            ["model.adapter.rank=8"],
            "model.adapter.rank is set, and model.adapter.kind is none; write model.adapter.kind=lora",
        ),
        (
            ["model.adapter.kind=loha", "model.adapter.dropout=0.1"],
            "dropout is for lora, rslora and dora, not for loha",
        ),
        (["model.adapter.kind=lora", "model.adapter.factor=4"], "factor is for lokr; leave it out with lora"),
        (["model.adapter.kind=loha", "model.adapter.decompose_both=true"], "decompose_both is for lokr; leave it out"),
        (["model.adapter.path=a.safetensors", "model.adapter.factor=4"], "factors come from the file"),
        (["model.adapter.path=a.safetensors", "model.adapter.decompose_both=true"], "factors come from the file"),
        (["model.adapter.kind=lokr", "model.adapter.factor=0"], "factor must be -1, or at least 1"),
        (
            ["model.adapter.kind=dora", "model.adapter.init=pissa"],
            "changes the weights that model.adapter.kind=dora depends on",
        ),
    ],
)
def test_conflicting_settings_are_refused_with_a_remedy(settings: list[str], sentence: str) -> None:
    assert sentence in contradiction(*settings)
