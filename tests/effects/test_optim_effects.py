"""Rows of the section `optim`: size and direction of updates."""

from __future__ import annotations

import math
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

from mezzotint.errors import RecipeError
from mezzotint.settings.reading.read import read_text
from mezzotint.settings.sections.optim import OptimSettings
from mezzotint.training import ema as ema_module
from mezzotint.training import lr
from mezzotint.training.update import Update

Prepare = Callable[..., Any]
PLAIN = {"optim__clip__norm": "null", "optim__ema__rule": "none", "optim__optimizer__weight_decay": 0}
BOTH = {"model__train": ["denoiser", "text_encoder"], "data__cache__text": False}


def norm(tensors: Any) -> float:
    return float(torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(t) for t in tensors])))


def adam_direction(step: Any, name: str, eps: float = 1e-8) -> Tensor:
    """g/(|g| + eps): the direction of AdamW's first step, whose bias-corrected moments are g and g²."""
    return step.grads[name] / (step.grads[name].abs() + eps)


def test_reported_norm_is_that_of_the_gradients(prepare: Prepare) -> None:
    step = prepare(**PLAIN).step()
    assert step.grads.keys() == step.before.keys()
    assert norm(step.grads.values()) == pytest.approx(step.report.norm, rel=1e-4)


# breaks if Trainer.rates does not start from optim.lr, or Update passes another rate to the kernel
@pytest.mark.effect("optim.lr")
def test_doubled_lr_doubles_the_change(prepare: Prepare) -> None:
    slow, fast = (prepare(optim__lr=rate, **PLAIN).step() for rate in (1e-3, 2e-3))
    assert slow.largest("denoiser") == pytest.approx(1e-3, rel=1e-3)
    assert fast.largest("denoiser") == pytest.approx(2e-3, rel=1e-3)
    for name in slow.grads:
        torch.testing.assert_close(2 * slow.moved(name), fast.moved(name), rtol=1e-3, atol=1e-6)
        torch.testing.assert_close(slow.moved(name), -1e-3 * adam_direction(slow, name), rtol=1e-3, atol=1e-6)


# breaks if Trainer.rates only uses optim.lr
@pytest.mark.effect("optim.part_lr")
def test_part_lr_sets_the_rate_of_a_part(prepare: Prepare) -> None:
    step = prepare(optim__lr=1e-3, optim__part_lr={"text_encoder": 4e-3}, **BOTH, **PLAIN).step()
    assert step.largest("denoiser") == pytest.approx(1e-3, rel=1e-3)
    assert step.largest("text_encoder") == pytest.approx(4e-3, rel=1e-3)
    assert step.report.rates == {"denoiser": 1e-3, "text_encoder": 4e-3}


# breaks if a pattern's rate does not reach the kernel, another entry wins, or a rate of 0 leaves weights trained
@pytest.mark.effect("optim.part_lr")
def test_part_lr_sets_the_rate_of_a_name_pattern(prepare: Prepare) -> None:
    rates = {"denoiser/mid_block.*": 4e-3, "denoiser/mid_block.resnets.0.*": 2e-3, "denoiser/conv_in": 0}
    ready = prepare(optim__lr=1e-3, optim__part_lr=rates, **PLAIN)
    frozen = {n: p.clone() for n, p in ready.family.parts()["denoiser"].named_parameters() if n.startswith("conv_in.")}
    step = ready.step()
    for name in step.after:
        layer = name.removeprefix("denoiser/")
        rate = 2e-3 if layer.startswith("mid_block.resnets.0.") else 4e-3 if layer.startswith("mid_block.") else 1e-3
        torch.testing.assert_close(step.moved(name), -rate * adam_direction(step, name), rtol=1e-3, atol=1e-6)
    assert step.report.rates == {
        "denoiser": 1e-3, "denoiser/mid_block.resnets.0.*": 2e-3, "denoiser/mid_block.*": 4e-3,
    }  # fmt: skip
    after = dict(ready.family.parts()["denoiser"].named_parameters())
    assert frozen, "it exists"
    assert all(torch.equal(after[name], weight) and not after[name].requires_grad for name, weight in frozen.items())
    with pytest.raises(RecipeError, match="matches nothing that is trained; did you mean denoiser/mid_block"):
        prepare(optim__part_lr={"denoiser/mid_blocks.resnets.0": 1e-3}, **PLAIN)
    with pytest.raises(RecipeError, match=r"model\.train does not train"):
        prepare(optim__part_lr={"text_encoder/*": 1e-3}, **PLAIN)


# breaks if an update within the backward pass uses another rate than one after it
@pytest.mark.effect("optim.part_lr")
def test_rates_of_patterns_are_used_in_the_backward_pass(prepare: Prepare) -> None:
    settings = PLAIN | {"optim__lr": 1e-3, "optim__part_lr": {"denoiser/mid_block.*": 4e-3, "denoiser/conv_in*": 0}}
    ends = []
    for within in (False, True):
        ready = prepare(optim__in_backward=within, **settings)
        ready.trainer.train_step(ready.next_batches())
        ends.append({name: tensor.clone() for name, tensor in ready.trainer.model.update.masters.items()})
    assert ends[0].keys() == ends[1].keys()
    for name, weight in ends[0].items():
        torch.testing.assert_close(ends[1][name], weight, rtol=1e-5, atol=1e-7)


# breaks if the weights follow another rule than AdamW (decoupled decay, bias correction)
@pytest.mark.effect("optim.optimizer.kind")
def test_kind_adamw_is_torchs_adamw(prepare: Prepare) -> None:
    ready = prepare(optim__lr=1e-3, optim__clip__norm="null", optim__optimizer__kind="adamw")
    twins = {name: nn.Parameter(t) for name, t in ready.step().after.items()}
    ready = prepare(optim__lr=1e-3, optim__clip__norm="null", optim__optimizer__kind="adamw")
    for name, tensor in ready.trainer.model.update.masters.items():
        twins[name].data.copy_(tensor)
    theirs = torch.optim.AdamW(twins.values(), lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01)
    for _ in range(3):
        step = ready.step()
        for name, twin in twins.items():
            twin.grad = step.grads[name]
        theirs.step()
    for name, twin in twins.items():
        torch.testing.assert_close(step.after[name], twin.detach(), rtol=1e-5, atol=1e-6)
    with pytest.raises(RecipeError, match=r"optim\.optimizer\.kind"):
        read_text("optim: {optimizer: {kind: sgd}}")


# breaks if Update passes fixed betas to the kernel
@pytest.mark.effect("optim.optimizer.betas")
def test_betas_are_the_decay_of_the_moments(prepare: Prepare) -> None:
    step = prepare(optim__optimizer__betas=[0.5, 0.75], **PLAIN).step()
    for name, grad in step.grads.items():
        torch.testing.assert_close(step.mean[name], 0.5 * grad, rtol=1e-4, atol=1e-9)
        torch.testing.assert_close(step.square[name], 0.25 * grad**2, rtol=1e-4, atol=1e-12)


# breaks if Update passes a fixed eps to the kernel
@pytest.mark.effect("optim.optimizer.eps")
def test_eps_damps_small_gradients(prepare: Prepare) -> None:
    step = prepare(optim__lr=1e-3, optim__optimizer__eps=1.0, **PLAIN).step()
    for name in step.grads:
        torch.testing.assert_close(step.moved(name), -1e-3 * adam_direction(step, name, 1.0), rtol=1e-2, atol=1e-7)


# breaks if a group's weight decay is not that of the settings, or no_decay's patterns have no group
@pytest.mark.effect("optim.optimizer.weight_decay", "optim.optimizer.no_decay")
def test_weight_decay_shrinks_all_but_those_named(prepare: Prepare) -> None:
    settings = PLAIN | {"optim__optimizer__weight_decay": 0.5, "optim__optimizer__no_decay": ["*norm*"]}
    step = prepare(optim__lr=1e-2, **settings).step()
    spared = [name for name in step.grads if "norm" in name]
    assert any(float(step.before[name].abs().max()) == 1.0 for name in spared), "there are weights that could decay"
    for name in step.grads:
        decay = 0.0 if name in spared else 0.5
        expected = -1e-2 * (decay * step.before[name] + adam_direction(step, name))
        torch.testing.assert_close(step.moved(name), expected, rtol=1e-3, atol=1e-6)


def factor(step: int, **schedule: Any) -> float:
    """The factor of the rate in a run of 100 steps, by a recipe."""
    words = [f"optim.schedule.{name}={value}" for name, value in schedule.items()]
    return lr.factor(read_text("schema: 1", overrides=words).recipe.optim.schedule, step, 100)


# breaks if Trainer.rates ignores the schedule: the factors below would be unused
@pytest.mark.effect("optim.schedule.warmup_steps")
def test_warmup_rises_from_zero(prepare: Prepare) -> None:
    ready = prepare(optim__lr=4e-3, optim__schedule__warmup_steps=4, **PLAIN)
    steps = [ready.step() for _ in range(2)]
    assert steps[0].largest("denoiser") == 0.0
    assert steps[1].report.rates == {"denoiser": 1e-3}
    assert 0 < steps[1].largest("denoiser") <= 1.01e-3
    rates = [ready.trainer.train_step.rates(n)["denoiser"] for n in (2, 3, 4, 9)]
    assert rates == pytest.approx([2e-3, 3e-3, 4e-3, 4e-3])


# breaks if a case of lr._decay_factor returns another curve
@pytest.mark.effect("optim.schedule.kind")
@pytest.mark.parametrize(
    ("kind", "at_25", "at_75"),
    [
        ("constant", 1.0, 1.0),
        ("linear", 0.75, 0.25),
        ("cosine", 0.5 + math.sqrt(0.125), 0.5 - math.sqrt(0.125)),
        ("restarts", 0.5 + math.sqrt(0.125), 0.5 - math.sqrt(0.125)),
        ("polynomial", 0.75, 0.25),
        ("inverse-sqrt", (1 + 25 / 10_000) ** -0.5, (1 + 75 / 10_000) ** -0.5),
        ("piecewise", 0.3, 0.02),
    ],
)
def test_schedule_kind_is_the_curve_of_the_rate(kind: str, at_25: float, at_75: float) -> None:
    points = {"points": "[[10, 0.3], [60, 0.02]]"} if kind == "piecewise" else {}
    results = [factor(step, kind=kind, **points) for step in (0, 25, 75)]
    assert results == pytest.approx([1.0, at_25, at_75])


# breaks if the decay always has the length of the run
@pytest.mark.effect("optim.schedule.decay_steps")
def test_decay_steps_is_when_the_floor_is_reached() -> None:
    assert [factor(s, kind="linear", decay_steps=50) for s in (25, 50, 90)] == pytest.approx([0.5, 0.0, 0.0])
    assert [factor(s, kind="linear") for s in (25, 50, 90)] == pytest.approx([0.75, 0.5, 0.1])


# breaks if the decay starts after the warm-up, or ends before the run
@pytest.mark.effect("optim.schedule.cooldown_steps")
@pytest.mark.effect("optim.schedule.cooldown_ratio")
@pytest.mark.parametrize("cooldown", [{"cooldown_steps": 20}, {"cooldown_ratio": 0.2}])
def test_cooldown_is_the_last_part(cooldown: dict[str, float]) -> None:
    results = [factor(s, kind="linear", warmup_steps=10, **cooldown) for s in (5, 10, 80, 85, 100)]
    assert results == pytest.approx([0.5, 1.0, 1.0, 0.75, 0.0])


# breaks if the timescale is always that of the warm-up
@pytest.mark.effect("optim.schedule.timescale_steps")
def test_timescale_of_the_inverse_square_root() -> None:
    warm = [factor(s, kind="inverse-sqrt", warmup_steps=10) for s in (5, 10, 40)]
    assert warm == pytest.approx([0.5, 1.0, 0.5])
    assert factor(90, kind="inverse-sqrt", warmup_steps=10, timescale_steps=240) == pytest.approx(math.sqrt(0.75))


# breaks if the curves always end at 0, whatever the floor
@pytest.mark.effect("optim.schedule.floor")
@pytest.mark.parametrize("kind", ["linear", "cosine", "polynomial"])
def test_floor_is_the_lowest_factor(kind: str) -> None:
    assert [factor(s, kind=kind, floor=0.2) for s in (0, 50, 100, 500)] == pytest.approx([1.0, 0.6, 0.2, 0.2])


# breaks if restarts have one cycle, whatever the setting
@pytest.mark.effect("optim.schedule.cycles")
def test_cycles_counts_decays() -> None:
    assert [factor(s, kind="restarts", cycles=4) for s in (0, 25, 50, 75)] == pytest.approx([1.0] * 4)
    assert factor(12, kind="restarts", cycles=2) == pytest.approx(0.5 + 0.5 * math.cos(math.pi * 0.24))


# breaks if polynomial is always linear
@pytest.mark.effect("optim.schedule.power")
def test_power_is_the_exponent_of_the_polynomial() -> None:
    assert [factor(s, kind="polynomial", power=3) for s in (20, 50)] == pytest.approx([0.8**3, 0.125])


# breaks if piecewise ignores its points, or their order
@pytest.mark.effect("optim.schedule.points")
def test_points_are_steps_with_factors() -> None:
    points = "[[5, 0.5], [50, 2.0], [80, 0.0]]"
    results = [factor(s, kind="piecewise", points=points) for s in (4, 5, 49, 50, 79, 80)]
    assert results == [1.0, 0.5, 0.5, 2.0, 2.0, 0.0]


# breaks if the plan or the loader does not get the number, or the loss is a sum over batches
@pytest.mark.effect("optim.accumulation")
def test_accumulation_joins_batches_into_one_step(prepare: Prepare) -> None:
    one, two = prepare(data__batch_size=2), prepare(data__batch_size=2, optim__accumulation=2)
    batches = one.job.dataset.timeline.epoch(0).num_batches
    assert one.job.dataset.timeline.steps_of(0) == batches
    assert two.job.dataset.timeline.steps_of(0) == -(-batches // 2)
    apart, together = [one.step().batches, one.next_batches()], two.step()
    assert [b.keys for b in together.batches.batches] == [b.keys for s in apart for b in s.batches]
    assert together.report.samples == sum(s.count for s in apart)
    mean = sum(together.report.losses) / together.report.samples
    assert together.report.loss == pytest.approx(mean, rel=1e-5)


# breaks if clipping does not happen, or at another norm
@pytest.mark.effect("optim.clip.norm")
def test_clip_norm_bounds_the_gradient(prepare: Prepare) -> None:
    for length, expected in (("0.1", 0.1), ("1000", None), ("null", None)):
        step = prepare(**PLAIN | {"optim__clip__norm": length}).step()
        taken = norm(step.mean.values()) / 0.1  # the first moment is (1 − 0.9) times the clipped gradient
        assert taken == pytest.approx(expected or step.report.norm, rel=1e-3)
        assert step.report.norm > 0.1


# breaks if one scope uses the coefficients of another
@pytest.mark.effect("optim.clip.scope")
def test_clip_scope_groups_gradients(prepare: Prepare) -> None:
    results = {
        scope: prepare(optim__clip__norm=1e-3, optim__clip__scope=scope, **BOTH).step()
        for scope in ("all", "part", "tensor")
    }

    def taken(scope: str, start: str = "") -> float:
        return norm(t for name, t in results[scope].mean.items() if name.startswith(start)) / 0.1

    assert taken("all") == pytest.approx(1e-3, rel=1e-2)
    for part in ("denoiser/", "text_encoder/"):
        assert taken("all", part) < 0.999e-3
        assert taken("part", part) == pytest.approx(1e-3, rel=1e-2)
    for name, grad in results["tensor"].grads.items():
        assert taken("tensor", name) == pytest.approx(min(1e-3, norm([grad])), rel=1e-2)


def train_with_ema(prepare: Prepare, steps: int = 3, **ema: Any) -> tuple[list[dict[str, Tensor]], Any]:
    """The weights before and after each step, and the average at the end."""
    ready = prepare(optim__lr=1e-2, **{f"optim__ema__{name}": value for name, value in ema.items()})
    steps_made = [ready.step() for _ in range(steps)]
    return [steps_made[0].before, *(step.after for step in steps_made)], ready.trainer.model.update.ema


def expected_average(weights: list[dict[str, Tensor]], decays: list[float]) -> dict[str, Tensor]:
    """average ← d · average + (1 − d) · weights, starting as a copy."""
    average = weights[0]
    for after, d in zip(weights[1:], decays, strict=True):
        average = {name: d * s + (1 - d) * after[name] for name, s in average.items()}
    return average


def assert_all_close(tensors: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    for name, tensor in tensors.items():
        torch.testing.assert_close(tensor, expected[name], rtol=1e-4, atol=1e-6)


# breaks if a rule uses another case of decay_at, or does not reach the average
@pytest.mark.effect("optim.ema.rule")
@pytest.mark.parametrize(
    ("rule", "decays"),
    [
        ("constant", [0.6, 0.6, 0.6]),
        ("ramp", [0.0, 2 / 11, 3 / 12]),
        ("saturating", [0.6 * (1 - math.exp(-u / 2000)) for u in (1, 2, 3)]),
    ],
)
def test_ema_rule_sets_the_decay_curve(prepare: Prepare, rule: str, decays: list[float]) -> None:
    weights, average = train_with_ema(prepare, rule=rule, decay=0.6)
    assert_all_close(average.weights, expected_average(weights, decays))


# breaks if `none` keeps an average
@pytest.mark.effect("optim.ema.rule")
def test_ema_rule_none_keeps_no_average(prepare: Prepare) -> None:
    ready = prepare(optim__ema__rule="none")
    assert ready.trainer.model.update.ema is None
    assert not [name for name in ready.trainer.tensors() if name.startswith("ema/")]


# breaks if the decay is fixed
@pytest.mark.effect("optim.ema.decay")
def test_ema_decay_is_the_kept_share(prepare: Prepare) -> None:
    for decay in (0.1, 0.95):
        weights, average = train_with_ema(prepare, steps=2, rule="constant", decay=decay)
        assert_all_close(average.weights, expected_average(weights, [decay] * 2))


# breaks if the average is updated at every step
@pytest.mark.effect("optim.ema.interval")
def test_ema_interval_counts_steps_between_updates(prepare: Prepare) -> None:
    weights, average = train_with_ema(prepare, rule="constant", decay=0.5, interval=2)
    assert float(average.updates) == 1
    assert_all_close(average.weights, expected_average([weights[0], weights[2]], [0.5]))


class AtOnce:
    """Runs its work at once, in the same thread."""

    def __init__(self, **_: Any) -> None: ...

    def submit(self, work: Callable[..., None], *arguments: Any) -> Future[None]:
        done: Future[None] = Future()
        done.set_result(work(*arguments))
        return done


# breaks if the average is always on the weights' device, or always on the CPU; a GPU is simulated, nothing is computed
@pytest.mark.effect("optim.ema.device")
@pytest.mark.parametrize(("where", "device"), [("same", "cuda"), ("cpu", "cpu")])
def test_ema_device_holds_the_average(where: str, device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ema_module, "ThreadPoolExecutor", AtOnce)  # simulated tensors belong to one thread
    for name in ("Stream", "Event"):  # and to no real device
        monkeypatch.setattr(torch.cuda, name, lambda *_: None)
    words = ["optim.ema.rule=constant", f"optim.ema.device={where}"]
    settings = read_text("schema: 1", overrides=words).recipe.optim
    with FakeTensorMode():
        weight = nn.Parameter(torch.empty(3, device="cuda"))
        update = Update({"denoiser/weight": weight}, settings, separate_masters=False)
        assert update.ema is not None
        update.ema.follow(update.masters, torch.zeros((), device="cuda"))
        assert update.masters["denoiser/weight"].device.type == "cuda"
        assert {t.device.type for t in update.ema.tensors().values()} == {device}


# --- optimizers of libraries ----------------------------------------------------------------------------------------


def moved_by(optimizer: dict[str, Any], steps: int = 2) -> torch.Tensor:
    """A vector after some steps with the same gradient."""
    trained = {"denoiser/a": torch.nn.Parameter(torch.ones(3, 2))}
    update = Update(trained, OptimSettings(optimizer=optimizer, clip={"norm": None}), separate_masters=False)
    for _ in range(steps):
        trained["denoiser/a"].grad = torch.tensor([[4.0, -2.0], [1.0, 0.5], [-3.0, 2.0]])
        one = torch.tensor(1.0)
        rates = {group.name: 0.1 for group in update.groups}
        update.apply(loss_scale=one, norms=one[None], found_inf=0 * one, lr=rates, update_ema=False)
    return trained["denoiser/a"].detach()


# breaks if every name selects the same class
@pytest.mark.effect("optim.optimizer.class_name")
def test_class_name_selects_the_optimizer() -> None:
    assert torch.equal(moved_by({"kind": "library", "class_name": "torch.optim.SGD"}, 1)[0], torch.tensor([0.6, 1.2]))
    assert not torch.equal(
        moved_by({"kind": "library", "class_name": "torch.optim.NAdam"}, 1)[0], torch.tensor([0.6, 1.2])
    )


# breaks if options are not passed to the class
@pytest.mark.effect("optim.optimizer.options")
def test_options_reach_the_class() -> None:
    momentum = {"kind": "library", "class_name": "torch.optim.SGD", "options": {"momentum": 0.5}}
    torch.testing.assert_close(moved_by(momentum)[0], 1 - 0.1 * torch.tensor([4.0, -2.0]) * (1 + 1.5))


# breaks if Adafactor's update is not clipped at this root mean square
@pytest.mark.effect("optim.optimizer.clip_update")
def test_clip_update_bounds_the_rms_of_a_step() -> None:
    def last_step(clip_update: float) -> float:
        optimizer = {"kind": "adafactor", "clip_update": clip_update}
        trained = {"denoiser/a": torch.nn.Parameter(torch.ones(4))}
        update = Update(trained, OptimSettings(optimizer=optimizer, clip={"norm": None}), separate_masters=False)
        one = torch.tensor(1.0)
        for size in (1.0, 1.0, 1.0, 100.0):
            before = trained["denoiser/a"].detach().clone()
            trained["denoiser/a"].grad = torch.full((4,), size)
            update.apply(loss_scale=one, norms=one[None], found_inf=0 * one, lr={"denoiser": 1e-3}, update_ema=False)
        return float((before - trained["denoiser/a"].detach()).square().mean().sqrt())

    # the fourth second moment is 4^-0.8 of the new square and the rest of the old ones
    unclipped = 100 / (4**-0.8 * 100**2 + (1 - 4**-0.8)) ** 0.5
    assert unclipped > 1.5
    assert last_step(5.0) / last_step(1.0) == pytest.approx(unclipped, rel=0.01)


# breaks if the second moment decays at another rate
@pytest.mark.effect("optim.optimizer.beta2_decay")
def test_beta2_decay_sets_adafactors_second_moment() -> None:
    def gradient_shrinks(beta2_decay: float) -> float:
        settings = OptimSettings(optimizer={"kind": "adafactor", "beta2_decay": beta2_decay}, clip={"norm": None})
        trained = {"denoiser/a": torch.nn.Parameter(torch.ones(1))}
        update = Update(trained, settings, separate_masters=False)
        one = torch.tensor(1.0)
        for size in (1.0, 0.0):
            trained["denoiser/a"].grad = torch.tensor([size])
            update.apply(loss_scale=one, norms=one[None], found_inf=0 * one, lr={"denoiser": 0.1}, update_ema=False)
        return float(update.tensors()["opt.variance/denoiser/a"])

    # after the second step, with no gradient in it: 1 − 2^beta2_decay of the first one's square is left
    for exponent in (-0.8, -0.3):
        assert gradient_shrinks(exponent) == pytest.approx(1 - 2**exponent, rel=1e-5)


def prodigy(steps: int = 2, **options: Any) -> tuple[float, float]:
    """Under a constant gradient and a rate factor of 0.1: the distance of a weight from its start, and its rate. At
    first the second moment is √(1 − β₂) of the gradient, the first one 1 − β₁."""
    pytest.importorskip("pytorch_optimizer")
    trained = {"denoiser/a": torch.nn.Parameter(torch.zeros(3))}
    settings = OptimSettings(optimizer={"kind": "prodigy", "d0": 1e-4} | options, clip={"norm": None})
    update = Update(trained, settings, separate_masters=False)
    one = torch.tensor(1.0)
    for _ in range(steps):
        trained["denoiser/a"].grad = torch.full((3,), 2.0)
        update.apply(loss_scale=one, norms=one[None], found_inf=0 * one, lr={"denoiser": 0.1}, update_ema=False)
    d_hat = update.tensors()["opt.group.d_hat#float/denoiser/a"]
    return -float(trained["denoiser/a"].detach()[0]), float(d_hat)


# breaks if prodigy's own settings have no effect
@pytest.mark.effect("optim.optimizer.kind", "optim.optimizer.d0", "optim.optimizer.bias_correction")
def test_prodigy_starts_at_its_initial_estimate() -> None:
    assert prodigy(1, bias_correction=True)[0] == pytest.approx(0.1 * 1e-4, rel=1e-4)
    assert prodigy(1, bias_correction=True, d0=1e-3)[0] == pytest.approx(0.1 * 1e-3, rel=1e-4)
    assert prodigy(1)[0] == pytest.approx(0.1 * 1e-4 * (1 - 0.9) / (1 - 0.999) ** 0.5, rel=1e-4)


# breaks if the rate is estimated in another way: it is the distance covered, divided by the accumulated gradients
@pytest.mark.effect("optim.optimizer.d_beta", "optim.optimizer.d_coef", "optim.optimizer.safeguard_warmup")
def test_prodigy_settings_change_the_estimated_rate() -> None:
    result = prodigy()[1]
    assert prodigy(d_coef=2.0)[1] == pytest.approx(2 * result, rel=1e-5)
    assert prodigy(d_beta=0.0)[1] == pytest.approx((1 + 0.999**0.5) * result, rel=1e-5)
    assert prodigy(safeguard_warmup=True)[1] == pytest.approx(0.1 * result, rel=1e-5)


# breaks if the rate can grow without limit
@pytest.mark.effect("optim.optimizer.growth_rate")
def test_growth_rate_bounds_the_rise_of_prodigys_rate() -> None:
    free, bounded = prodigy(40)[0], prodigy(40, growth_rate=1.01)[0]
    assert bounded < 0.5 * free


# breaks if Lion is another optimizer, or its two betas are exchanged
@pytest.mark.effect("optim.optimizer.kind", "optim.optimizer.betas")
def test_lion_steps_by_the_sign_of_the_mean() -> None:
    plain = {"kind": "lion", "weight_decay": 0.0}
    signs = torch.tensor([[1.0, -1.0], [1.0, 1.0], [-1.0, 1.0]])
    torch.testing.assert_close(moved_by(plain, 2), 1 - 0.1 * 2 * signs)

    def second_step(betas: tuple[float, float]) -> float:
        trained = {"denoiser/a": torch.nn.Parameter(torch.zeros(1))}
        optimizer = {"kind": "lion", "weight_decay": 0.0, "betas": betas}
        update = Update(trained, OptimSettings(optimizer=optimizer, clip={"norm": None}), separate_masters=False)
        one = torch.tensor(1.0)
        for gradient in (1.0, -0.3):
            trained["denoiser/a"].grad = torch.tensor([gradient])
            update.apply(loss_scale=one, norms=one[None], found_inf=0 * one, lr={"denoiser": 0.1}, update_ema=False)
        return float(trained["denoiser/a"].detach()) + 0.1

    # the mean is 1 − β₂ after the first step; the second turns back where β₁ (1 − β₂) < 0.3 (1 − β₁)
    assert second_step((0.5, 0.5)) == pytest.approx(-0.1)
    assert second_step((0.5, 0.9)) == pytest.approx(0.1)
    assert second_step((0.1, 0.5)) == pytest.approx(0.1)
