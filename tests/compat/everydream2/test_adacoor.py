"""AdaCoor; its numbers against EveryDream2's are in tests/parity."""

from __future__ import annotations

import torch

from support.messages import refusal
from support.stepping import apply, parameters, update_of


def test_adacoor_state_is_bfloat16() -> None:
    update = update_of("adacoor", parameters())
    assert {t.dtype for name, t in update.tensors().items() if name.startswith("opt.sum/")} == {torch.bfloat16}
    assert update.state_bytes() == 2 * 36


def test_first_step_is_sqrt_eps_whatever_the_rate_and_scale() -> None:
    trained = parameters()
    update = update_of("adacoor", trained)
    for p in trained.values():
        p.grad = 1024.0 * torch.ones_like(p)
    apply(update, scale=1024.0, lr=0.0)
    moved = trained["denoiser/a.weight"].detach() - parameters()["denoiser/a.weight"]
    torch.testing.assert_close(moved, torch.full((6, 5), -1e-4), rtol=0.02, atol=1e-6)


def test_rates_of_patterns_are_refused() -> None:
    words = ("optim.optimizer={kind: adacoor}", "optim.part_lr={'denoiser/mid_block.*': 1e-5}")
    assert "sets a rate for denoiser/mid_block.*, and adacoor has none" in refusal(*words)
