"""A quick benchmark."""

from __future__ import annotations

import pytest

from mezzotint.tasks.bench import bench


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """FLOPs and plots are tested elsewhere."""
    monkeypatch.setattr(bench, "flops_of_samples", lambda recipe, sizes: {})
    monkeypatch.setattr(bench, "plot_bench", lambda runs, **words: b"")
