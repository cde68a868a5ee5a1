"""Settings that do not go together with what this trainer adds."""

from __future__ import annotations

import pytest
from contradictions import contradiction


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (["data.format=mindone-cache", "data.mask.source=alpha"], "and data.format=mindone-cache gives none"),
        (["run.runtime=fsdp", "run.export.optimizer_file=mindone"], "hold whole tensors"),
    ],
)
def test_settings_that_do_not_go_together_are_told_with_the_remedy(settings: list[str], sentence: str) -> None:
    assert sentence in contradiction(*settings)
