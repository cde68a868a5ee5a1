"""Updates: masters, clipping, groups, EMA, checkpoints."""

from __future__ import annotations

from typing import Any

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


def test_trained_weights_are_back_after_an_incomplete_swap() -> None:
    trained = three()
    update = Update(trained, OptimSettings(), separate_masters=False)
    raw = {name: p.detach().clone() for name, p in trained.items()}
    others = {name: p + 1 for name, p in list(raw.items())[:-1]}
    with pytest.raises(KeyError), update.swap_in(others):
        pytest.fail("was entered with a weight missing")
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


def rounded(kind: str, *, on: bool = True, seed: int = 0) -> tuple[Parameters, Update]:
    trained = parameters(dtype=torch.bfloat16)
    settings = OptimSettings(optimizer={"kind": kind}, clip={"norm": None}, stochastic_rounding=on)
    return trained, Update(trained, settings, separate_masters=False, seed=seed)


def stepped(kind: str, seeds: range, *, resumed: Update | None = None, **how: Any) -> Update:
    """After a step for each seed, which is the step's number, too."""
    trained, update = rounded(kind, **how)
    if resumed is not None:
        update.load(kept(resumed))
    for number in seeds:
        give_gradients(trained, number)
        one, rates = torch.ones(()), {group.name: 1e-3 for group in update.groups}
        update.apply(
            loss_scale=one, norms=one[None], found_inf=0 * one, lr=rates, update_ema=False, step=number
        )  # fmt: skip
    return update


@pytest.mark.parametrize("kind", ["adamw", "lion", "adafactor", "schedule-free-adamw"])
def test_stochastic_rounding_keeps_state_in_float32_and_resumes_bit_exactly(kind: str) -> None:
    whole = stepped(kind, range(6))
    assert {t.dtype for n, t in whole.tensors().items() if n.startswith("w/")} == {torch.bfloat16}
    states = {n: t for n, t in whole.tensors().items() if n.startswith("opt.") and t.ndim}
    assert {t.dtype for t in states.values()} == {torch.float32}
    scalars = sum(t.nbytes for n, t in whole.tensors().items() if n.startswith("opt.") and not t.ndim)
    assert whole.state_bytes() == sum(t.nbytes for t in states.values()) + scalars - whole.applied.nbytes
    resumed = stepped(kind, range(3, 6), resumed=stepped(kind, range(3)))
    assert same(resumed.tensors(), whole.tensors())
    other_seed, off = stepped(kind, range(6), seed=1), stepped(kind, range(6), on=False)
    for other in (other_seed, off):
        assert not all(torch.equal(weight, whole.masters[name]) for name, weight in other.masters.items())


def test_updates_below_the_last_bit_count_on_average() -> None:
    """A hundred steps of 1/32 of the last bit of 1.0: weights that are rounded to the nearest never move."""
    ends = {}
    for on in (False, True):
        trained = {"denoiser/a": torch.nn.Parameter(torch.ones(2000, dtype=torch.bfloat16))}
        settings = OptimSettings(
            optimizer={"kind": "lion", "weight_decay": 0.0}, clip={"norm": None}, stochastic_rounding=on
        )
        update = Update(trained, settings, separate_masters=False)
        one = torch.ones(())
        for number in range(100):
            trained["denoiser/a"].grad = -torch.ones(2000, dtype=torch.bfloat16)
            update.apply(
                loss_scale=one, norms=one[None], found_inf=0 * one, lr={"denoiser": 2.0**-12}, update_ema=False,
                step=number,
            )  # fmt: skip
        ends[on] = trained["denoiser/a"].detach().float()
    assert bool((ends[False] == 1.0).all())
    assert float(ends[True].mean()) - 1.0 == pytest.approx(100 * 2.0**-12, rel=0.05)


def test_factors_of_rates_make_groups_of_their_own() -> None:
    trained = three()
    factors = {"denoiser/a.bias": 16.0}
    update = Update(trained, OptimSettings(), separate_masters=False, rate_factors=factors)
    assert [(group.name, group.rate_key, group.rate_factor, group.names) for group in update.groups] == [
        ("denoiser", "denoiser", 1.0, ["denoiser/a.weight"]),
        ("denoiser.x16", "denoiser", 16.0, ["denoiser/a.bias"]),
        ("text_encoder", "text_encoder", 1.0, ["text_encoder/b.weight"]),
    ]
