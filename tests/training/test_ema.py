from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from mezzotint.settings.reading.read import read_text
from mezzotint.training.ema import AsyncEma, Ema, decay_at
from mezzotint.training.update import Update
from support.streams import Line


def decays(rule: str, decay: float, counts: list[int], dtype: torch.dtype = torch.float64) -> list[float]:
    return [decay_at(rule, decay, torch.tensor(count, dtype=dtype)).item() for count in counts]


def test_constant_is_the_same_at_every_update() -> None:
    assert decays("constant", 0.9, [0, 1, 100000]) == [0.9] * 3


def test_ramp_copies_first_and_stops_at_the_decay() -> None:
    assert decays("ramp", 0.9999, [0, 1, 2, 100]) == pytest.approx([0, 2 / 11, 3 / 12, 101 / 110], rel=1e-15)
    assert decays("ramp", 0.9999, [89_989, 89_991, 10**7]) == pytest.approx([89990 / 89999, 0.9999, 0.9999], rel=1e-15)
    assert decays("ramp", 0.9, [1000]) == [0.9]


def test_saturating_rises_with_a_time_constant_of_2000_updates() -> None:
    expected = [0.9999 * (1 - math.exp(-(u + 1) / 2000)) for u in (0, 999, 1999, 10**6)]
    assert decays("saturating", 0.9999, [0, 999, 1999, 10**6]) == pytest.approx(expected, rel=1e-12)
    assert decays("saturating", 0.9999, [0]) == pytest.approx([0.0005], rel=1e-3)


@pytest.mark.parametrize("rule", ["constant", "ramp", "saturating"])
def test_float32_counters_lose_only_rounding(rule: str) -> None:
    counts = [0, 1, 7, 100, 5000, 1_000_000]
    exact, short = decays(rule, 0.9999, counts), decays(rule, 0.9999, counts, torch.float32)
    assert short == pytest.approx(exact, rel=3e-7)


@pytest.mark.parametrize("rule", ["constant", "ramp", "saturating"])
def test_ema_decay_causes_no_device_sync_and_keeps_the_counter(rule: str) -> None:
    seen: list[Any] = []

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(func)
            return func(*args, **(kwargs or {}))

    updates = torch.tensor(3.0)
    with Watch():
        result = decay_at(rule, 0.99, updates)
    assert seen
    assert torch.ops.aten._local_scalar_dense.default not in seen
    assert (result.shape, result.dtype, updates.item()) == (torch.Size([]), torch.float32, 3.0)
    assert decay_at(rule, 0.99, torch.tensor(3.0, device="meta")).device.type == "meta"


def test_ema_update_is_one_pass_over_memory() -> None:
    seen: list[str] = []

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(func._schema.name.removeprefix("aten::"))
            return func(*args, **(kwargs or {}))

    masters = {f"denoiser/{number}": torch.randn(3, 3) for number in range(700)}
    average = Ema(masters, read_text("schema: 1", overrides=["optim.ema.rule=ramp"]).recipe.optim)
    with Watch():
        average.follow(masters, torch.zeros(()))
    assert [name for name in seen if name.startswith("_foreach")] == ["_foreach_lerp_"]
    assert len(seen) < 30, "plus a few on scalars"


def test_unknown_ema_rule_is_refused() -> None:
    with pytest.raises(ValueError, match="sideways"):
        decay_at("sideways", 0.9, torch.tensor(0.0))


def test_background_ema_is_bit_exact() -> None:
    ema = read_text("schema: 1", overrides=["optim.ema.rule=ramp", "optim.ema.decay=0.9"]).recipe.optim
    masters = {"denoiser/a": torch.randn(64, 64), "denoiser/b": torch.randn(7)}
    beside, apart = (Ema(masters, ema, is_asynchronous=where) for where in (False, True))
    for step in range(12):
        for average in (beside, apart):
            average.follow(masters, torch.tensor(float(step == 5)))
        for master in masters.values():
            master.mul_(1.01).add_(0.1 * step)  # fails if the thread reads the masters instead of its copies
    assert apart.tensors().keys() == beside.tensors().keys()
    for name, tensor in beside.tensors().items():
        assert torch.equal(apart.tensors()[name], tensor), name


def test_error_in_the_ema_thread_is_raised_when_read() -> None:
    ema = read_text("schema: 1", overrides=["optim.ema.rule=constant"]).recipe.optim
    masters = {"denoiser/a": torch.randn(3)}
    average = Ema(masters, ema, is_asynchronous=True)
    average._weights["denoiser/a"] = torch.zeros(2)
    average.follow(masters, torch.zeros(()))
    with pytest.raises(RuntimeError):
        _ = average.weights


def test_ema_copies_weights_on_a_separate_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    """Copies wait for queued work, and only updates wait for the copies."""
    said: list[str] = []
    side, arrived, main = (Line(name, said) for name in ("side", "arrived", "main"))
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: main)
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: stream)
    monkeypatch.setattr(torch.Tensor, "record_stream", lambda tensor, stream: said.append(f"read on {stream.name}"))
    masters = {"denoiser/a": nn.Parameter(torch.ones(3)), "denoiser/b": nn.Parameter(torch.ones(2))}
    words = ["optim.ema.rule=constant", "optim.ema.decay=0.5", "optim.lr=1.0"]
    update = Update(masters, read_text("schema: 1", overrides=words).recipe.optim, separate_masters=False)
    assert update.ema is not None
    update.ema._async = behind = AsyncEma(update.masters)
    for place, line in (("_stream", side), ("_arrived", arrived)):
        monkeypatch.setattr(behind.copies, place, line)
    lr = {group.name: 1.0 for group in update.groups}
    one = torch.ones(())
    for _ in range(2):
        for p in masters.values():
            p.grad = torch.ones_like(p)
        moved = said.copy()
        update.apply(loss_scale=one, norms=torch.ones(1), found_inf=0 * one, lr=lr, update_ema=True)
    assert moved[:3] == ["main wait_event arrived", "side wait_stream main", "within side"]
    assert moved[3:8] == ["read on side"] * 3 + ["arrived record side", "out of side"]
    assert said[8:].index("main wait_event arrived") < said[8:].index("side wait_stream main")
    assert update.ema.weights["denoiser/a"].tolist() != [1.0] * 3
    assert said.count("arrived synchronize") == 2, "by the thread, not in the step"
