"""MindSpore's AdamWeightDecay: moments as they are, without the correction of their bias."""

from __future__ import annotations

import torch

from support.stepping import apply, give_gradients, parameters, update_of


def test_first_step_has_uncorrected_moments_and_scaled_decay() -> None:
    trained, before = parameters(), parameters()
    settings = {"kind": "adam-weight-decay", "betas": (0.9, 0.99), "eps": 1e-3, "weight_decay": 0.5}
    update = update_of(settings, trained)
    give_gradients(trained, 1)
    grads = {name: p.grad.clone() for name, p in trained.items() if p.grad is not None}
    apply(update)
    for name, grad in grads.items():
        moved = 0.1 * grad / ((0.01 * grad**2).sqrt() + 1e-3)
        torch.testing.assert_close(trained[name].detach(), before[name].detach() * (1 - 1e-2 * 0.5) - 1e-2 * moved)
