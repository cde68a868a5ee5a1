"""Schedule-free AdamW; its numbers are compared with the package's in tests/parity."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from mezzotint.settings.sections.optim import OptimSettings
from mezzotint.training.update import Update, evaluation_weights_of
from support.stepping import (
    Parameters,
    apply,
    give_gradients,
    kept,
    parameters,
    resumed_after_three,
    same,
    steps,
    update_of,
)

KIND = {"kind": "schedule-free-adamw", "warmup_steps": 4, "weight_decay": 0.1}


def test_schedule_free_adamw_resumes_bit_exactly() -> None:
    resumed_after_three(KIND)


def test_a_step_that_is_not_finite_changes_nothing() -> None:
    whole, broken = parameters(), parameters()
    first, second = update_of(KIND, whole), update_of(KIND, broken)
    give_gradients(broken, 9)
    broken["denoiser/a.bias"].grad.fill_(float("nan"))
    apply(second, bad=True)
    assert same(broken, parameters())
    for update, trained in ((first, whole), (second, broken)):
        steps(update, trained, range(3))
    before = kept(second)
    give_gradients(broken, 9)
    broken["denoiser/a.bias"].grad.fill_(float("inf"))
    apply(second, bad=True)
    assert same(before, second.tensors())
    assert same(first.tensors(), second.tensors()), "an earlier one neither counts nor weighs"


def test_weights_are_swapped_for_their_average_and_back_bit_by_bit() -> None:
    for dtype in (torch.float32, torch.bfloat16):  # bfloat16 has float32 masters
        trained = parameters(dtype=dtype)
        update = update_of(KIND, trained)
        steps(update, trained, range(5))
        before, weights = (
            kept(update) | {n: p.detach().clone() for n, p in trained.items()},
            update.evaluation_weights(),
        )
        z = {name: before[f"opt.z/{name}"] for name in trained}
        with update.swap_in(weights):
            for name, p in trained.items():
                assert torch.equal(p, weights[name].to(dtype))
                # y lies between x and z, nearer to x
                y = before[f"w/{name}"]
                torch.testing.assert_close(0.9 * weights[name] + 0.1 * z[name], y, rtol=1e-5, atol=1e-6)
        assert same(before, kept(update) | {n: p.detach() for n, p in trained.items()})
        of_checkpoint = evaluation_weights_of(before, OptimSettings(optimizer=KIND))
        assert all(torch.equal(of_checkpoint[name], weights[name]) for name in trained)


def test_average_is_that_of_z_by_the_square_of_the_rate() -> None:
    trained, sums, total = parameters(), {}, 0.0
    update = update_of(KIND, trained)
    for number, rate in enumerate((0.25, 0.5, 0.75, 1.0, 1.0)):
        give_gradients(trained, number)
        apply(update)
        total += rate**2
        for name in trained:
            sums[name] = sums.get(name, 0.0) + rate**2 * update.tensors()[f"opt.z/{name}"]
    for name, weight in update.evaluation_weights().items():
        torch.testing.assert_close(weight, sums[name] / total, rtol=1e-5, atol=1e-6)


def test_warm_up_of_the_schedule_weighs_like_its_own() -> None:
    ends = []
    for own in (True, False):
        trained = parameters()
        update = update_of(KIND | {"warmup_steps": 4 if own else 0}, trained)
        for number, factor in enumerate((0.25, 0.5, 0.75, 1.0, 1.0)):
            give_gradients(trained, number)
            apply(update, lr=1e-2 if own else 1e-2 * factor)
        ends.append(update.tensors() | {f"x/{n}": x for n, x in update.evaluation_weights().items()})
    for name, tensor in ends[0].items():
        torch.testing.assert_close(ends[1][name], tensor, rtol=1e-5, atol=1e-7)


def test_ema_follows_the_average() -> None:
    trained = parameters()
    update = update_of(KIND, trained, ema={"rule": "constant", "decay": 0.9})
    expected = kept(update)
    for seed in range(3):
        give_gradients(trained, seed)
        apply(update)
        x = update.evaluation_weights()
        expected = {f"ema/{n}": 0.9 * expected[f"ema/{n}"] + 0.1 * x[n] for n in trained}
    for name, average in update.ema.weights.items():
        torch.testing.assert_close(average, expected[f"ema/{name}"], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("settings", [{"in_backward": True}, {"optimizer": KIND | {"no_decay": ["*.bias"]}}])
def test_other_parts_keep_their_optimizer(settings: dict[str, Any]) -> None:
    """Also updated within the backward pass, tensor by tensor, and in groups with and without decay."""

    def two() -> Parameters:
        names = {f"{part}/{n}": p for part in ("denoiser", "text_encoder") for n, p in (("a.w", 3), ("a.bias", 2))}
        return {name: nn.Parameter(torch.linspace(-1.0, 1.0, size)) for name, size in names.items()}

    optim = {"clip": {"norm": None}, "optimizer": KIND, "part_optimizer": {"text_encoder": {"kind": "adamw"}}}
    ends = []
    for extra in ({}, settings):
        trained = two()
        update = Update(trained, OptimSettings(**optim | extra), separate_masters=False)
        rates = {group.name: 1e-2 for group in update.groups}
        for seed in range(4):
            loss = sum(((p - seed) ** 2).sum() for p in trained.values())
            if update.in_backward:
                update.begin_backward(loss, rates)
            loss.backward()
            apply(update) if not update.in_backward else update.apply(
                loss_scale=torch.ones(()), norms=torch.ones(1), found_inf=torch.zeros(()), lr=rates, update_ema=False
            )
        ends.append((update, trained, update.evaluation_weights()))
    for update, trained, weights in ends:
        assert torch.equal(weights["text_encoder/a.w"], trained["text_encoder/a.w"])
        assert not torch.equal(weights["denoiser/a.w"], trained["denoiser/a.w"])
        assert update.state_bytes() == 16 + 2 * 2 * 4 * 5
    names = ["denoiser/a.w"] if "optimizer" in settings else list(ends[0][1])
    for name in names:
        torch.testing.assert_close(ends[0][1][name], ends[1][1][name], rtol=1e-6, atol=1e-7)


def test_weights_in_bf16_without_masters_keep_z_in_bf16() -> None:
    trained = parameters(dtype=torch.bfloat16)
    settings = OptimSettings(optimizer=KIND, clip={"norm": None})
    update = Update(trained, settings, separate_masters=False)
    steps(update, trained, range(3), lr=0.1)
    assert {t.dtype for n, t in update.tensors().items() if n.startswith("opt.z/")} == {torch.bfloat16}
    assert all(weight.dtype == torch.float32 for weight in update.evaluation_weights().values())
