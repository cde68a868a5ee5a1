"""Lion, against another implementation."""

from __future__ import annotations

import pytest

from support.stepping import as_the_class_alone


def test_lion_matches_the_library() -> None:
    library = pytest.importorskip("pytorch_optimizer").Lion
    betas = (0.8, 0.95)
    as_the_class_alone({"kind": "lion", "betas": betas, "weight_decay": 0.5}, library, betas=betas, weight_decay=0.5)
