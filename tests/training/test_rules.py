from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from mezzotint.errors import RecipeError
from mezzotint.recipe.optim import OptimSettings
from mezzotint.training.update import Update

NADAM = {"kind": "library", "class_name": "torch.optim.NAdam", "options": {"momentum_decay": 4e-3}}


def parameters() -> dict[str, nn.Parameter]:
    torch.manual_seed(0)
    return {"denoiser/a.weight": nn.Parameter(torch.randn(6, 5)), "denoiser/a.bias": nn.Parameter(torch.randn(6))}


def steps(update: Update, trained: dict[str, nn.Parameter], seeds: range, bad: int = -1) -> None:
    for seed in seeds:
        generator = torch.Generator().manual_seed(seed)
        for p in trained.values():
            p.grad = torch.randn(p.shape, generator=generator)
        update.apply(
            loss_scale=torch.tensor(1.0),
            norms=torch.tensor([0.0]),
            found_inf=torch.tensor(float(seed == bad)),
            lr={group.name: 1e-2 for group in update.groups},
            moves_shadow=False,
        )


@pytest.mark.parametrize(
    ("optimizer", "library", "options"),
    [
        ({"kind": "adafactor"}, torch.optim.Adafactor, {}),
        (NADAM, torch.optim.NAdam, {"momentum_decay": 4e-3}),
        (
            {"kind": "library", "class_name": "torch.optim.SGD", "options": {"momentum": 0.9}},
            torch.optim.SGD,
            {"momentum": 0.9},
        ),
    ],
)
def test_a_library_optimizer_does_what_it_does_alone_and_resumes_to_the_bit(
    optimizer: dict[str, Any], library: Any, options: dict[str, Any]
) -> None:
    settings = OptimSettings(optimizer=optimizer, clip={"norm": None})
    trained, alone = parameters(), parameters()
    update = Update(trained, settings, separate_masters=False)
    steps(update, trained, range(6))
    reference = library(alone.values(), lr=1e-2, **options)
    for seed in range(6):
        generator = torch.Generator().manual_seed(seed)
        for p in alone.values():
            p.grad = torch.randn(p.shape, generator=generator)
        reference.step()
    for name, p in trained.items():
        torch.testing.assert_close(p, alone[name], rtol=1e-6, atol=1e-7)

    half, again = parameters(), parameters()
    first = Update(half, settings, separate_masters=False)
    steps(first, half, range(3))
    kept = {name: t.clone() for name, t in first.tensors().items()}
    second = Update(again, settings, separate_masters=False)
    second.load(kept)
    assert all(torch.equal(t, kept[name]) for name, t in second.tensors().items())
    steps(second, again, range(3, 6))
    assert all(torch.equal(again[name], p) for name, p in trained.items())


def test_a_library_optimizer_leaves_out_a_step_that_is_not_finite() -> None:
    trained = parameters()
    update = Update(trained, OptimSettings(optimizer=NADAM), separate_masters=False)
    steps(update, trained, range(2))
    before = {name: t.clone() for name, t in update.tensors().items()}
    steps(update, trained, range(2, 3), bad=2)
    assert all(torch.equal(before[name], t) for name, t in update.tensors().items())


@pytest.mark.parametrize(
    ("optimizer", "words"),
    [
        ({"kind": "library", "class_name": "nowhere.Optimizer"}, "cannot be had"),
        ({"kind": "library", "class_name": "torch.nn.Linear"}, "is no torch.optim.Optimizer"),
        ({"kind": "library", "class_name": "torch.optim.NoSuch"}, "cannot be had"),
    ],
)
def test_what_is_no_optimizer_is_named(optimizer: dict[str, Any], words: str) -> None:
    with pytest.raises(RecipeError, match=words):
        Update(parameters(), OptimSettings(optimizer=optimizer), separate_masters=False)


def test_eight_bit_moments_need_their_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "bitsandbytes", None)
    monkeypatch.setitem(__import__("sys").modules, "bitsandbytes.optim", None)
    with pytest.raises(RecipeError, match="eight-bit"):
        Update(parameters(), OptimSettings(optimizer={"kind": "adamw-8bit"}), separate_masters=False)


@pytest.mark.parametrize("optimizer", [{"kind": "adamw"}, {"kind": "adafactor"}, NADAM])
def test_the_bytes_of_the_state_are_known_before_the_first_step(optimizer: dict[str, Any]) -> None:
    trained = parameters()
    update = Update(trained, OptimSettings(optimizer=optimizer), separate_masters=False)
    forecast = update.state_bytes()
    steps(update, trained, range(1))
    kept = {n: t for n, t in update.tensors().items() if n.startswith("opt.") and "/" in n}
    assert forecast == sum(t.numel() * t.element_size() for t in kept.values())
