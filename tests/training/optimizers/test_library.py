from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import nn

from mezzotint.errors import RecipeError
from mezzotint.recipe.sections.optim import OptimSettings
from mezzotint.training.update import Update

NADAM = {"kind": "library", "class_name": "torch.optim.NAdam", "options": {"momentum_decay": 4e-3}}


def parameters() -> dict[str, nn.Parameter]:
    torch.manual_seed(0)
    return {"denoiser/a.weight": nn.Parameter(torch.randn(6, 5)), "denoiser/a.bias": nn.Parameter(torch.randn(6))}


def steps(
    update: Update,
    trained: dict[str, nn.Parameter],
    seeds: range,
    *,
    bad: int = -1,
    lr: float = 1e-2,
    alike: bool = False,
    downhill: bool = False,
) -> None:
    """alike: every part gets the same gradients. downhill: those of half the squared weights, instead of noise."""
    for seed in seeds:
        generator = torch.Generator().manual_seed(seed)
        for name, p in trained.items():
            if alike and name.endswith("/a.weight"):
                generator.manual_seed(seed)
            p.grad = p.detach().clone() if downhill else torch.randn(p.shape, generator=generator)
        update.apply(
            loss_scale=torch.tensor(1.0),
            norms=torch.tensor([0.0]),
            found_inf=torch.tensor(float(seed == bad)),
            lr={group.name: lr for group in update.groups},
            update_ema=False,
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


@pytest.mark.parametrize(
    "optimizer", [{"kind": "adamw"}, {"kind": "adafactor"}, {"kind": "adacoor"}, {"kind": "lion"}, NADAM]
)
def test_the_bytes_of_the_state_are_known_before_the_first_step(optimizer: dict[str, Any]) -> None:
    trained = parameters()
    update = Update(trained, OptimSettings(optimizer=optimizer), separate_masters=False)
    forecast = update.state_bytes()
    steps(update, trained, range(1))
    kept = {n: t for n, t in update.tensors().items() if n.startswith("opt.") and "/" in n}
    assert forecast == sum(t.numel() * t.element_size() for t in kept.values())


class Distance(torch.optim.Optimizer):
    """Keeps numbers of the whole group among its settings, as Prodigy does, and none of its parameters alone."""

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


def resumed_after_three(optimizer: dict[str, Any], **given: Any) -> None:
    """Six steps in one go are three steps, a checkpoint, and three more, bit by bit."""
    settings = OptimSettings(optimizer=optimizer, clip={"norm": None})
    whole, half, again = parameters(), parameters(), parameters()
    steps(Update(whole, settings, separate_masters=False), whole, range(6), **given)
    first = Update(half, settings, separate_masters=False)
    steps(first, half, range(3), **given)
    kept = {name: t.clone() for name, t in first.tensors().items()}
    second = Update(again, settings, separate_masters=False)
    second.load(kept)
    tensors = second.tensors()
    assert kept.keys() == tensors.keys()
    assert all(torch.equal(t, kept[name]) and t.dtype == kept[name].dtype for name, t in tensors.items())
    steps(second, again, range(3, 6), **given)
    assert all(torch.equal(again[name], p) for name, p in whole.items())
    assert any(not torch.equal(again[name], p) for name, p in parameters().items())


def test_numbers_that_a_library_keeps_of_a_group_are_part_of_the_state(distance: dict[str, Any]) -> None:
    resumed_after_three(distance)
    trained = parameters()
    update = Update(trained, OptimSettings(optimizer=distance), separate_masters=False)
    steps(update, trained, range(3))
    kept = {name: t for name, t in update.tensors().items() if name.startswith("opt.group.")}
    where = "denoiser/a.weight"
    assert {name: t.dtype for name, t in kept.items()} == {
        f"opt.group.d#float/{where}": torch.float64,
        f"opt.group.k#int/{where}": torch.int64,
        f"opt.group.seen/{where}": torch.float32,
        f"opt.group.warm#bool/{where}": torch.int64,
    }, "what never changes, such as slope, is the recipe's"


def test_an_option_that_changes_on_resume_is_not_undone_by_the_checkpoint(distance: dict[str, Any]) -> None:
    trained, again = parameters(), parameters()
    first = Update(trained, OptimSettings(optimizer=distance), separate_masters=False)
    steps(first, trained, range(2))
    changed = OptimSettings(optimizer=distance | {"options": {"slope": 0.125}})
    second = Update(again, changed, separate_masters=False)
    second.load({name: t.clone() for name, t in first.tensors().items()})
    before = again["denoiser/a.bias"].detach().clone()
    steps(second, again, range(2, 3), lr=100.0)
    [group] = second._steps["denoiser"]._optimizers[("denoiser/a.weight", "denoiser/a.bias")].param_groups  # type: ignore[attr-defined]
    wanted = 100.0 * group["d"] * 0.125 / 3
    moved = (before - again["denoiser/a.bias"].detach()).abs()
    torch.testing.assert_close(moved, torch.full_like(moved, wanted), rtol=1e-3, atol=0)


def test_a_weight_decay_of_nought_is_said_to_a_class_with_another_default(distance: dict[str, Any]) -> None:
    found = {}
    for decay in (0.0, 0.5):
        trained = parameters()
        before = {name: p.detach().clone() for name, p in trained.items()}
        settings = OptimSettings(optimizer=distance | {"weight_decay": decay, "options": {"slope": 0.0}})
        steps(Update(trained, settings, separate_masters=False), trained, range(1))
        found[decay] = {name: p.detach() / before[name] for name, p in trained.items()}
    for name in found[0.0]:
        torch.testing.assert_close(found[0.0][name], torch.ones_like(found[0.0][name]))
        torch.testing.assert_close(found[0.5][name], torch.full_like(found[0.5][name], 1 - 1e-2 * 0.5))


@pytest.mark.parametrize(
    ("name", "lr", "keeps"),
    [
        ("Lion", 1e-3, set()),
        ("Prodigy", 1.0, {"d", "d_max", "d_hat", "d_numerator"}),
        ("DAdaptAdam", 1.0, {"d"}),
        ("DAdaptLion", 1.0, {"d"}),
        ("DAdaptSGD", 1.0, {"d"}),
    ],
)
def test_optimizers_of_the_extra_resume_to_the_bit(name: str, lr: float, keeps: set[str]) -> None:
    pytest.importorskip("pytorch_optimizer")
    optimizer = {"kind": "library", "class_name": f"pytorch_optimizer.{name}"}
    resumed_after_three(optimizer, lr=lr, downhill=True)
    trained = parameters()
    update = Update(trained, OptimSettings(optimizer=optimizer), separate_masters=False)
    steps(update, trained, range(3), lr=lr, downhill=True)
    kept = {n.split("/")[0].removeprefix("opt.group.").split("#")[0] for n in update.tensors() if "opt.group." in n}
    assert keeps <= kept


def test_adacoor_moves_nothing_on_a_step_that_is_not_finite() -> None:
    trained = parameters()
    update = Update(trained, OptimSettings(optimizer={"kind": "adacoor"}), separate_masters=False)
    steps(update, trained, range(2))
    before = {name: t.clone() for name, t in update.tensors().items()}
    for p in trained.values():
        p.grad = torch.full_like(p, float("nan"))
        p.grad[0] = float("inf")
    one = torch.tensor(1.0)
    update.apply(loss_scale=one, norms=one[None], found_inf=one, lr={"denoiser": 1e-2}, update_ema=False)
    assert all(torch.equal(before[name], t) for name, t in update.tensors().items())


def test_adacoors_state_is_kept_as_it_is_and_resumes_to_the_bit() -> None:
    resumed_after_three({"kind": "adacoor"})
    trained = parameters()
    update = Update(trained, OptimSettings(optimizer={"kind": "adacoor"}), separate_masters=False)
    assert {t.dtype for name, t in update.tensors().items() if name.startswith("opt.sum/")} == {torch.bfloat16}
    assert update.state_bytes() == 2 * 36


def test_adacoor_takes_gradients_without_the_loss_scale() -> None:
    moved = []
    for scale in (1.0, 1024.0):
        trained = parameters()
        update = Update(
            trained, OptimSettings(optimizer={"kind": "adacoor"}, clip={"norm": None}), separate_masters=False
        )
        for p in trained.values():
            p.grad = scale * torch.ones_like(p)
        one = torch.tensor(1.0)
        update.apply(loss_scale=one * scale, norms=one[None], found_inf=0 * one, lr={"denoiser": 0.0}, update_ema=False)
        moved.append(trained["denoiser/a.weight"].detach() - parameters()["denoiser/a.weight"])
    assert torch.equal(*moved)
    # the first step is about √eps of the gradient's sign
    torch.testing.assert_close(moved[0], torch.full((6, 5), -1e-4), rtol=0.02, atol=1e-6)


BOTH = {
    "optimizer": {"kind": "adamw", "weight_decay": 0.0},
    "part_optimizer": {"text_encoder": {"kind": "adacoor"}},
    "clip": {"norm": None},
}


def two_parts() -> dict[str, nn.Parameter]:
    return {name: p for part in ("denoiser", "text_encoder") for name, p in _named(part).items()}


def _named(part: str) -> dict[str, nn.Parameter]:
    return {name.replace("denoiser", part): p for name, p in parameters().items()}


def test_each_part_has_its_rule_and_its_state() -> None:
    trained = two_parts()
    update = Update(trained, OptimSettings(**BOTH), separate_masters=False)
    assert update.state_bytes() == 8 * 36 + 2 * 36
    alone = {
        "denoiser": (parameters(), {"optimizer": BOTH["optimizer"]}),
        "text_encoder": (_named("text_encoder"), {"optimizer": {"kind": "adacoor"}}),
    }
    steps(update, trained, range(3), alike=True)
    for mine, settings in alone.values():
        steps(
            Update(mine, OptimSettings(clip={"norm": None}, **settings), separate_masters=False),
            mine,
            range(3),
            alike=True,
        )
        assert all(torch.equal(trained[name], p) for name, p in mine.items())
    kept = {name.split("/")[0] + " " + name.split("/")[1] for name in update.tensors() if name.count("/") > 1}
    assert kept == {
        "w denoiser", "opt.mean denoiser", "opt.square denoiser", "w text_encoder", "opt.sum text_encoder",
    }  # fmt: skip
    again = two_parts()
    second = Update(again, OptimSettings(**BOTH), separate_masters=False)
    second.load({name: t.clone() for name, t in update.tensors().items()})
    assert all(torch.equal(t, update.tensors()[name]) for name, t in second.tensors().items())


def test_patterns_of_a_parts_rule_are_held_against_that_part() -> None:
    def made(general: str, own: str) -> Update:
        rules = {"optimizer": {"no_decay": [general]}, "part_optimizer": {"text_encoder": {"no_decay": [own]}}}
        return Update(two_parts(), OptimSettings(**rules), separate_masters=False)

    assert {g.name: g.names for g in made("denoiser/*.bias", "*.weight").groups if "no_decay" in g.name} == {
        "denoiser.no_decay": ["denoiser/a.bias"],
        "text_encoder.no_decay": ["text_encoder/a.weight"],
    }
    with pytest.raises(RecipeError, match=r"optim.part_optimizer.text_encoder.no_decay: 'denoiser"):
        made("*.bias", "denoiser/*.bias")
    with pytest.raises(RecipeError, match=r"optim.optimizer.no_decay: 'text_encoder"):
        made("text_encoder/*.bias", "*.bias")


LION = {"kind": "lion", "betas": (0.8, 0.95), "weight_decay": 0.5}


def test_lion_is_the_librarys() -> None:
    library = pytest.importorskip("pytorch_optimizer").Lion
    trained, alone = parameters(), parameters()
    update = Update(trained, OptimSettings(optimizer=LION, clip={"norm": None}), separate_masters=False)
    steps(update, trained, range(6))
    reference = library(alone.values(), lr=1e-2, betas=(0.8, 0.95), weight_decay=0.5)
    for seed in range(6):
        generator = torch.Generator().manual_seed(seed)
        for p in alone.values():
            p.grad = torch.randn(p.shape, generator=generator)
        reference.step()
    for name, p in trained.items():
        assert not torch.equal(p, parameters()[name])
        torch.testing.assert_close(p, alone[name], rtol=1e-6, atol=1e-7)


def test_lion_and_prodigy_resume_to_the_bit() -> None:
    resumed_after_three(LION)
    pytest.importorskip("pytorch_optimizer")
    resumed_after_three({"kind": "prodigy", "growth_rate": 1.5, "safeguard_warmup": True}, lr=1.0, downhill=True)


def test_lion_moves_nothing_on_a_step_that_is_not_finite_and_does_not_mind_the_loss_scale() -> None:
    trained = parameters()
    update = Update(trained, OptimSettings(optimizer=LION), separate_masters=False)
    steps(update, trained, range(2))
    before = {name: t.clone() for name, t in update.tensors().items()}
    steps(update, trained, range(2, 3), bad=2)
    assert all(torch.equal(before[name], t) for name, t in update.tensors().items())
    means = []
    for scale in (1.0, 1024.0):
        trained = parameters()
        update = Update(trained, OptimSettings(optimizer=LION, clip={"norm": None}), separate_masters=False)
        for p in trained.values():
            p.grad = torch.ones_like(p) * scale
        one = torch.tensor(1.0)
        update.apply(
            loss_scale=one * scale, norms=one[None], found_inf=0 * one, lr={"denoiser": 1e-2}, update_ema=False
        )
        means.append(update.tensors()["opt.mean/denoiser/a.weight"].clone())
    assert torch.equal(*means)
    assert float(means[0].max()) > 0


def test_prodigy_finds_a_rate_and_needs_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pytorch_optimizer")
    trained = parameters()
    update = Update(trained, OptimSettings(optimizer={"kind": "prodigy", "d0": 1e-5}), separate_masters=False)
    steps(update, trained, range(6), lr=1.0, downhill=True)
    assert float(update.tensors()["opt.group.d#float/denoiser/a.weight"]) > 1.5e-5
    monkeypatch.setitem(sys.modules, "pytorch_optimizer", None)
    with pytest.raises(RecipeError, match=r"mezzotint\[optimizers\]"):
        Update(parameters(), OptimSettings(optimizer={"kind": "prodigy"}), separate_masters=False)
