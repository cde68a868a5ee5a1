"""`TorchStep`: state of parameter groups, options on resume, and chunks."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import pytest
import torch

from mezzotint.training.optimizers._torch_class import TorchStep
from support.stepping import kept, parameters, resumed_after_three, steps, update_of


class Distance(torch.optim.Optimizer):
    """Keeps values of the whole group in its options, as Prodigy does, and no state per parameter."""

    def __init__(self, params: Any, lr: float = 1.0, slope: float = 0.5, weight_decay: float = 0.25) -> None:
        super().__init__(params, {"lr": lr, "slope": slope, "weight_decay": weight_decay, "d": 1e-3, "k": 0})

    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            group["d"] = group["d"] * 1.1 + float(sum(p.grad.abs().sum() for p in group["params"])) / 3e5
            group["k"] += 1
            group["seen"] = torch.tensor([1.0 / group["k"]])
            group["warm"] = group["k"] > 2
            for p in group["params"]:
                p.mul_(1 - group["lr"] * group["weight_decay"])
                p.sub_(group["lr"] * group["d"] * group["slope"] * float(group["seen"]) * p.grad.sign())


@pytest.fixture
def distance(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    module = ModuleType("made_up_optimizers")
    module.Distance = Distance  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "made_up_optimizers", module)
    return {"kind": "library", "class_name": "made_up_optimizers.Distance"}


def test_group_values_of_a_library_are_part_of_the_state(distance: dict[str, Any]) -> None:
    resumed_after_three(distance)
    trained = parameters()
    update = update_of(distance, trained)
    steps(update, trained, range(3))
    of_group = {name: t.dtype for name, t in update.tensors().items() if name.startswith("opt.group.")}
    where = "denoiser/a.weight"
    assert of_group == {
        f"opt.group.d#float/{where}": torch.float64,
        f"opt.group.k#int/{where}": torch.int64,
        f"opt.group.seen/{where}": torch.float32,
        f"opt.group.warm#bool/{where}": torch.int64,
    }, "what never changes, such as slope, is the recipe's"


def test_option_changed_on_resume_overrides_the_checkpoint(distance: dict[str, Any]) -> None:
    trained, again = parameters(), parameters()
    first = update_of(distance, trained)
    steps(first, trained, range(2))
    second = update_of(distance | {"options": {"slope": 0.125}}, again)
    second.load(kept(first))
    before = again["denoiser/a.bias"].detach().clone()
    steps(second, again, range(2, 3), lr=100.0)
    expected = 100.0 * float(second.tensors()["opt.group.d#float/denoiser/a.weight"]) * 0.125 / 3
    moved = (before - again["denoiser/a.bias"].detach()).abs()
    torch.testing.assert_close(moved, torch.full_like(moved, expected), rtol=1e-3, atol=0)


def test_zero_weight_decay_overrides_default_of_the_class(distance: dict[str, Any]) -> None:
    for decay in (0.0, 0.5):
        trained = parameters()
        optimizer = distance | {"weight_decay": decay, "options": {"slope": 0.0}}
        steps(update_of(optimizer, trained), trained, range(1))
        for name, before in parameters().items():
            torch.testing.assert_close(
                trained[name].detach() / before.detach(), torch.full_like(before, 1 - 1e-2 * decay)
            )


def test_only_classes_of_known_packages_are_updated_in_chunks() -> None:
    assert TorchStep(torch.optim.NAdam, {}).is_by_tensor
    assert not TorchStep(Distance, {}).is_by_tensor
