"""The fused AdamW kernel of torch: its formula, and no change in skipped steps."""

from __future__ import annotations

import torch
from torch import Tensor

from mezzotint.training.optimizers.base import StepInputs
from mezzotint.training.optimizers.shared import AdamWStep


def stepped(found_inf: float) -> tuple[Tensor, AdamWStep]:
    masters = {"denoiser/a": torch.tensor([1.0, -2.0])}
    rule = AdamWStep(masters, torch.tensor(1.0), betas=(0.9, 0.99), eps=1e-8)
    gradient = torch.tensor([8.0, 16.0])  # scaled by 4
    rule.step(
        StepInputs(
            ["denoiser/a"], [masters["denoiser/a"]], [gradient], lr=0.1, weight_decay=0.5, scale=torch.tensor(4.0),
            found_inf=torch.tensor(found_inf),
        )
    )  # fmt: skip
    return masters["denoiser/a"], rule


def test_first_step_applies_rate_and_weight_decay() -> None:
    master, rule = stepped(0.0)
    start, gradient = torch.tensor([1.0, -2.0]), torch.tensor([2.0, 4.0])
    torch.testing.assert_close(master, start * (1 - 0.1 * 0.5) - 0.1 * gradient.sign(), rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(rule.state["mean"]["denoiser/a"], 0.1 * gradient, rtol=1e-6, atol=1e-7)
    torch.testing.assert_close(rule.state["square"]["denoiser/a"], 0.01 * gradient**2, rtol=1e-5, atol=1e-7)


def test_overflow_changes_nothing() -> None:
    master, rule = stepped(1.0)
    assert master.tolist() == [1.0, -2.0]
    assert all(not bool(tensor.any()) for tensors in rule.state.values() for tensor in tensors.values())
