"""Several command lines of `sample` in one process: the last two models stay open."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mezzotint.settings.base import with_values
from mezzotint.settings.reading.read import read_text
from mezzotint.tasks.sample import again


def test_last_two_sampled_models_stay_open(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    opened: list[str] = []
    monkeypatch.setattr(again, "open_model", lambda source, weights, adapters: opened.append(source.name) or object())
    recipe = read_text("schema: 1").recipe
    for name in "abc":
        (tmp_path / name).mkdir()
    sources: dict[str, Any] = {
        name: SimpleNamespace(recipe=with_values(recipe, {"model.path": tmp_path / name}), name=name, checkpoint=None)
        for name in "abc"
    }
    runner = again.SampleRunner()
    first = runner._open_or_reuse(sources["a"], None, ())
    assert runner._open_or_reuse(sources["b"], None, ()) is not first
    assert runner._open_or_reuse(sources["a"], None, ()) is first
    runner._open_or_reuse(sources["c"], None, ())
    assert runner._open_or_reuse(sources["a"], None, ()) is first, "used after b"
    assert opened == ["a", "b", "c"]
    runner._open_or_reuse(sources["b"], None, ())
    runner._open_or_reuse(sources["b"], "raw", ())
    assert opened == ["a", "b", "c", "b", "b"], "other weights are another model"
