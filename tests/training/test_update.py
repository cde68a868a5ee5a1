"""Updates: masters, clipping, groups, EMA, checkpoints."""

from __future__ import annotations

import pytest
import torch

from mezzotint.errors import RecipeError
from mezzotint.runtimes.base import norms_of
from mezzotint.settings.sections.optim import OptimSettings
from mezzotint.training.update import Update
from support.stepping import Parameters, apply, give_gradients, kept, parameters, same, steps, update_of


def three() -> Parameters:
    return parameters({"denoiser/a.weight": (6, 5), "denoiser/a.bias": (6,), "text_encoder/b.weight": (4,)})


def test_small_steps_reach_float32_masters_that_bf16_weights_cannot_hold() -> None:
    trained = parameters(dtype=torch.bfloat16)
    update = update_of({"weight_decay": 0.0}, trained)
    start = {name: m.clone() for name, m in update.masters.items()}
    for seed in range(3):
        give_gradients(trained, seed)
        apply(update, lr=1e-5)
    assert all(bool((update.masters[name] != start[name]).any()) for name in start)
    assert all(torch.equal(p, update.masters[name].to(torch.bfloat16)) for name, p in trained.items())


@pytest.mark.parametrize("scope", ["part", "tensor"])
def test_clipping_by_part_and_by_tensor_is_independent(scope: str) -> None:
    trained = three()
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
    apply(update, norms=norms_of(trained, scope))
    for name, p in trained.items():
        torch.testing.assert_close(p.detach(), expected[name], rtol=1e-5, atol=1e-6)


def test_weight_decay_excludes_named_patterns() -> None:
    trained = three()
    update = Update(
        trained, OptimSettings(optimizer={"weight_decay": 0.5, "no_decay": ["*.bias"]}), separate_masters=False
    )
    before = {name: p.detach().clone() for name, p in trained.items()}
    for p in trained.values():
        p.grad = torch.zeros_like(p)
    apply(update, lr=0.1)
    assert torch.equal(trained["denoiser/a.bias"], before["denoiser/a.bias"])
    torch.testing.assert_close(trained["denoiser/a.weight"].detach(), before["denoiser/a.weight"] * 0.95)
    with pytest.raises(RecipeError, match="matches no trained parameter"):
        Update(trained, OptimSettings(optimizer={"no_decay": ["*.bais"]}), separate_masters=False)


@pytest.mark.parametrize("device", ["same", "cpu"])
def test_ema_follows_masters_and_swaps_in_and_out(device: str) -> None:
    trained = three()
    update = Update(
        trained, OptimSettings(ema={"rule": "constant", "decay": 0.9, "device": device}), separate_masters=False
    )
    expected = {name: m.clone() for name, m in update.masters.items()}
    for seed in range(3):
        give_gradients(trained, seed)
        apply(update)
        expected = {name: 0.9 * e + 0.1 * update.masters[name] for name, e in expected.items()}
    raw = {name: p.detach().clone() for name, p in trained.items()}
    with update.swap_in(update.ema.weights):
        for name, p in trained.items():
            torch.testing.assert_close(p.detach(), expected[name], rtol=1e-5, atol=1e-6)
    assert all(torch.equal(raw[name], p) for name, p in trained.items())


def test_ema_does_not_change_trained_weights() -> None:
    ends = []
    for rule in ("none", "ramp"):
        trained = three()
        update = update_of("adamw", trained, clip={"norm": 1.0}, ema={"rule": rule})
        for seed in range(4):
            give_gradients(trained, seed)
            apply(update)
        ends.append([p.detach().clone() for p in trained.values()])
    assert all(torch.equal(a, b) for a, b in zip(*ends, strict=True))


def test_update_resumes_bit_exactly() -> None:
    ema = {"rule": "ramp"}
    whole, half, again = three(), three(), three()
    first, second, third = (update_of("adamw", one, clip={"norm": 1.0}, ema=ema) for one in (whole, half, again))
    steps(first, whole, range(6))
    steps(second, half, range(3))
    third.load(kept(second))
    steps(third, again, range(3, 6))
    assert same(third.tensors(), first.tensors())


BOTH = {
    "optimizer": {"kind": "adamw", "weight_decay": 0.0},
    "part_optimizer": {"text_encoder": {"kind": "lion"}},
    "clip": {"norm": None},
}


def two_parts() -> Parameters:
    return {name: p for part in ("denoiser", "text_encoder") for name, p in part_alone(part).items()}


def part_alone(part: str) -> Parameters:
    return {name.replace("denoiser", part): p for name, p in parameters().items()}


def test_each_part_has_its_own_optimizer_and_state() -> None:
    trained = two_parts()
    update = Update(trained, OptimSettings(**BOTH), separate_masters=False)
    assert update.state_bytes() == 8 * 36 + 4 * 36
    alone = {
        "denoiser": (parameters(), {"optimizer": BOTH["optimizer"]}),
        "text_encoder": (part_alone("text_encoder"), {"optimizer": {"kind": "lion"}}),
    }
    for seed in range(3):
        for part in ("denoiser", "text_encoder"):
            give_gradients({name: p for name, p in trained.items() if name.startswith(part)}, seed)
        apply(update)
    for mine, settings in alone.values():
        steps(update_of(settings["optimizer"], mine), mine, range(3))
        assert all(torch.equal(trained[name], p) for name, p in mine.items())
    assert {" ".join(name.split("/")[:2]) for name in update.tensors() if name.count("/") > 1} == {
        "w denoiser", "opt.mean denoiser", "opt.square denoiser", "w text_encoder", "opt.mean text_encoder",
    }  # fmt: skip
    again = two_parts()
    second = Update(again, OptimSettings(**BOTH), separate_masters=False)
    second.load({name: t.clone() for name, t in update.tensors().items()})
    assert all(torch.equal(t, update.tensors()[name]) for name, t in second.tensors().items())


def test_patterns_of_a_part_match_only_that_part() -> None:
    def built(general: str, own: str) -> Update:
        rules = {"optimizer": {"no_decay": [general]}, "part_optimizer": {"text_encoder": {"no_decay": [own]}}}
        return Update(two_parts(), OptimSettings(**rules), separate_masters=False)

    assert {g.name: g.names for g in built("denoiser/*.bias", "*.weight").groups if "no_decay" in g.name} == {
        "denoiser.no_decay": ["denoiser/a.bias"],
        "text_encoder.no_decay": ["text_encoder/a.weight"],
    }
    with pytest.raises(RecipeError, match=r"optim.part_optimizer.text_encoder.no_decay: 'denoiser"):
        built("*.bias", "denoiser/*.bias")
    with pytest.raises(RecipeError, match=r"optim.optimizer.no_decay: 'text_encoder"):
        built("text_encoder/*.bias", "*.bias")
