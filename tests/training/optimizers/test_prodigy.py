"""Prodigy from pytorch_optimizer."""

from __future__ import annotations

import sys

import pytest

from mezzotint.errors import RecipeError
from support.stepping import parameters, resumed_after_three, steps, update_of


def test_prodigy_finds_a_rate_resumes_and_needs_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pytorch_optimizer")
    resumed_after_three({"kind": "prodigy", "growth_rate": 1.5, "safeguard_warmup": True}, lr=1.0, downhill=True)
    trained = parameters()
    update = update_of({"kind": "prodigy", "d0": 1e-5}, trained)
    steps(update, trained, range(6), lr=1.0, downhill=True)
    assert float(update.tensors()["opt.group.d#float/denoiser/a.weight"]) > 1.5e-5
    monkeypatch.setitem(sys.modules, "pytorch_optimizer", None)
    with pytest.raises(RecipeError, match=r"mezzotint\[optimizers\]"):
        update_of("prodigy", parameters())
