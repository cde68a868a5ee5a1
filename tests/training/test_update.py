from __future__ import annotations

import pytest
import torch
from torch import nn

from mezzotint.errors import RecipeError
from mezzotint.recipe.reading.read import read_text
from mezzotint.recipe.sections.optim import OptimSettings
from mezzotint.runtimes.base import norms_of
from mezzotint.training.ema import Ema
from mezzotint.training.update import Update


def parameters() -> dict[str, nn.Parameter]:
    torch.manual_seed(0)
    return {
        "denoiser/a.weight": nn.Parameter(torch.randn(6, 5)),
        "denoiser/a.bias": nn.Parameter(torch.randn(6)),
        "text_encoder/b.weight": nn.Parameter(torch.randn(4)),
    }


def give_gradients(trained: dict[str, nn.Parameter], seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    for p in trained.values():
        p.grad = torch.randn(p.shape, generator=generator).to(p.dtype)


def apply(
    update: Update, trained: dict[str, nn.Parameter], *, scale: float = 1.0, bad: bool = False, lr: float = 1e-2
) -> None:
    norms = torch.stack([p.grad.float().norm() / scale for p in trained.values() if p.grad is not None])
    update.apply(
        loss_scale=torch.tensor(scale),
        norms=torch.linalg.vector_norm(norms).reshape(1),
        found_inf=torch.tensor(float(bad)),
        lr={group.name: lr for group in update.groups},
        update_ema=update.ema is not None,
    )


def test_it_is_torchs_adamw_with_torchs_clipping() -> None:
    trained = parameters()
    reference = [nn.Parameter(p.detach().clone()) for p in trained.values()]
    ours = Update(trained, OptimSettings(clip={"norm": 0.5}), separate_masters=False)
    theirs = torch.optim.AdamW(reference, lr=1e-2, weight_decay=0.01)
    for seed in range(5):
        give_gradients(trained, seed)
        for p, r in zip(trained.values(), reference, strict=True):
            r.grad = p.grad.clone()
        torch.nn.utils.clip_grad_norm_(reference, 0.5)
        theirs.step()
        apply(ours, trained)
    for p, r in zip(trained.values(), reference, strict=True):
        torch.testing.assert_close(p, r, rtol=1e-6, atol=1e-7)


def test_a_step_that_is_not_finite_moves_nothing_at_all() -> None:
    trained = parameters()
    update = Update(trained, OptimSettings(ema={"rule": "constant", "decay": 0.5}), separate_masters=False)
    give_gradients(trained, 1)
    apply(update, trained)
    before = {name: t.clone() for name, t in update.tensors().items()}
    give_gradients(trained, 2)
    next(iter(trained.values())).grad[0, 0] = float("inf")
    apply(update, trained, bad=True)
    assert all(torch.equal(before[name], t) for name, t in update.tensors().items())


def test_the_loss_scale_is_taken_out_again() -> None:
    results = []
    for scale in (1.0, 1024.0):
        trained = parameters()
        update = Update(trained, OptimSettings(), separate_masters=False)
        for seed in range(3):
            give_gradients(trained, seed)
            for p in trained.values():
                p.grad *= scale
            apply(update, trained, scale=scale)
        results.append([p.detach().clone() for p in trained.values()])
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-7)


def test_small_steps_reach_float32_masters_that_bf16_weights_cannot_hold() -> None:
    trained = {name: nn.Parameter(p.detach().to(torch.bfloat16)) for name, p in parameters().items()}
    update = Update(trained, OptimSettings(optimizer={"weight_decay": 0.0}), separate_masters=True)
    start = {name: m.clone() for name, m in update.masters.items()}
    for seed in range(3):
        give_gradients(trained, seed)
        apply(update, trained, lr=1e-5)
    assert all(bool((update.masters[name] != start[name]).any()) for name in start)
    assert all(torch.equal(p, update.masters[name].to(torch.bfloat16)) for name, p in trained.items())


@pytest.mark.parametrize("scope", ["part", "tensor"])
def test_clipping_by_part_and_by_tensor_shortens_each_on_its_own(scope: str) -> None:
    trained = parameters()
    update = Update(
        trained, OptimSettings(clip={"norm": 1.0, "scope": scope}, optimizer={"eps": 1.0}), separate_masters=False
    )
    before = {name: p.detach().clone() for name, p in trained.items()}
    give_gradients(trained, 0)
    trained["text_encoder/b.weight"].grad.mul_(1e-3)
    expected = {}
    for name, p in trained.items():
        together = (
            [p] if scope == "tensor" else [q for n, q in trained.items() if n.split("/")[0] == name.split("/")[0]]
        )
        norm = torch.linalg.vector_norm(torch.stack([q.grad.norm() for q in together]))
        g = p.grad * min(1.0, 1.0 / (float(norm) + 1e-6))
        # first AdamW step: bias-corrected moments are the gradient and its square
        expected[name] = before[name] * (1 - 1e-2 * 0.01) - 1e-2 * g / (g.abs() + 1.0)
    update.apply(
        loss_scale=torch.tensor(1.0),
        norms=norms_of(trained, scope),
        found_inf=torch.tensor(0.0),
        lr={g.name: 1e-2 for g in update.groups},
        update_ema=False,
    )
    for name, p in trained.items():
        torch.testing.assert_close(p.detach(), expected[name], rtol=1e-5, atol=1e-6)


def test_weight_decay_spares_the_named_patterns() -> None:
    trained = parameters()
    update = Update(
        trained, OptimSettings(optimizer={"weight_decay": 0.5, "no_decay": ["*.bias"]}), separate_masters=False
    )
    before = {name: p.detach().clone() for name, p in trained.items()}
    for p in trained.values():
        p.grad = torch.zeros_like(p)
    apply(update, trained, lr=0.1)
    assert torch.equal(trained["denoiser/a.bias"], before["denoiser/a.bias"])
    torch.testing.assert_close(trained["denoiser/a.weight"].detach(), before["denoiser/a.weight"] * 0.95)
    with pytest.raises(RecipeError, match="matches no trained parameter"):
        Update(trained, OptimSettings(optimizer={"no_decay": ["*.bais"]}), separate_masters=False)


@pytest.mark.parametrize("device", ["same", "cpu"])
def test_the_average_follows_the_masters_and_swaps_in_and_out(device: str) -> None:
    trained = parameters()
    update = Update(
        trained, OptimSettings(ema={"rule": "constant", "decay": 0.9, "device": device}), separate_masters=False
    )
    expected = {name: m.clone() for name, m in update.masters.items()}
    for seed in range(3):
        give_gradients(trained, seed)
        apply(update, trained)
        expected = {name: 0.9 * e + 0.1 * update.masters[name] for name, e in expected.items()}
    raw = {name: p.detach().clone() for name, p in trained.items()}
    with update.ema_swapped_in():
        for name, p in trained.items():
            torch.testing.assert_close(p.detach(), expected[name], rtol=1e-5, atol=1e-6)
    assert all(torch.equal(raw[name], p) for name, p in trained.items())


def test_the_average_does_not_change_the_trained_weights() -> None:
    ends = []
    for rule in ("none", "ramp"):
        trained = parameters()
        update = Update(trained, OptimSettings(ema={"rule": rule}), separate_masters=False)
        for seed in range(4):
            give_gradients(trained, seed)
            apply(update, trained)
        ends.append([p.detach().clone() for p in trained.values()])
    assert all(torch.equal(a, b) for a, b in zip(*ends, strict=True))


def test_what_is_saved_and_loaded_goes_on_to_the_bit() -> None:
    def steps(update: Update, trained: dict[str, nn.Parameter], seeds: range) -> None:
        for seed in seeds:
            give_gradients(trained, seed)
            apply(update, trained)

    settings = OptimSettings(ema={"rule": "ramp"})
    whole = parameters()
    first = Update(whole, settings, separate_masters=False)
    steps(first, whole, range(6))
    half = parameters()
    second = Update(half, settings, separate_masters=False)
    steps(second, half, range(3))
    kept = {name: t.clone() for name, t in second.tensors().items()}
    again = parameters()
    third = Update(again, settings, separate_masters=False)
    third.load(kept)
    steps(third, again, range(3, 6))
    assert all(torch.equal(t, third.tensors()[name]) for name, t in first.tensors().items())


def test_an_average_apart_follows_behind_the_steps_to_the_same_bits() -> None:
    ema = read_text("schema: 1", overrides=["optim.ema.rule=ramp", "optim.ema.decay=0.9"]).recipe.optim
    masters = {"denoiser/a": torch.randn(64, 64), "denoiser/b": torch.randn(7)}
    beside, apart = (Ema(masters, ema, apart=where) for where in (False, True))
    for step in range(12):
        for average in (beside, apart):
            average.follow(masters, torch.tensor(float(step == 5)))
        for master in masters.values():
            master.mul_(1.01).add_(0.1 * step)  # breaks if the thread reads the masters instead of its copies
    assert apart.tensors().keys() == beside.tensors().keys()
    for name, tensor in beside.tensors().items():
        assert torch.equal(apart.tensors()[name], tensor), name


def test_what_fails_in_the_thread_of_the_average_is_raised_where_it_is_read() -> None:
    ema = read_text("schema: 1", overrides=["optim.ema.rule=constant"]).recipe.optim
    masters = {"denoiser/a": torch.randn(3)}
    average = Ema(masters, ema, apart=True)
    average._weights["denoiser/a"] = torch.zeros(2)
    average.follow(masters, torch.zeros(()))
    with pytest.raises(RuntimeError):
        _ = average.weights
