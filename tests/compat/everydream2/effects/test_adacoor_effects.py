"""Rows of `optim.optimizer` for AdaCoor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

Prepare = Callable[..., Any]


# breaks if the kind selects another rule, or a rate or weight decay reaches AdaCoor
@pytest.mark.effect("optim.optimizer.kind", "optim.optimizer.eps")
def test_adacoor_step_size_depends_only_on_eps(prepare: Prepare) -> None:
    settings = {"optim__clip__norm": "null", "optim__ema__rule": "none", "optim__optimizer__kind": "adacoor"}
    slow, fast, wide = (
        prepare(optim__lr=rate, optim__optimizer__eps=eps, **settings).step()
        for rate, eps in ((1e-3, 1e-8), (1e-1, 1e-8), (1e-3, 1e-6))
    )
    for name in slow.grads:
        assert torch.equal(slow.after[name], fast.after[name])
        large = slow.grads[name].abs() > 1e-3
        way = slow.moved(name)[large] / -slow.grads[name][large].sign()
        torch.testing.assert_close(way, torch.full_like(way, 1e-4), rtol=0.15, atol=1e-7)
    assert slow.largest("denoiser") == pytest.approx(1e-4, rel=0.02)
    assert wide.largest("denoiser") == pytest.approx(1e-3, rel=0.02)
