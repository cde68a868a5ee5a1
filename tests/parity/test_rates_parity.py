"""Learning rates and average decays against stored results of diffusers and MindONE."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from mezzotint.settings.sections.optim import ScheduleSettings
from mezzotint.training.ema import decay_at
from mezzotint.training.lr import factor

DATA = Path(__file__).parent / "data"
LENGTHS = {"warm10_total100": (10, 100), "warm0_total50": (0, 50)}
KINDS: dict[str, dict[str, Any]] = {
    "linear": {"kind": "linear"},
    "cosine": {"kind": "cosine"},
    "cosine_with_restarts": {"kind": "restarts"},
    "polynomial": {"kind": "polynomial", "floor": 1e-7 / 1e-4},
    "constant_with_warmup": {"kind": "constant"},
    "constant": {"kind": "constant", "warmup_steps": 0},  # which ignores its warm-up
}


def rates(base: float, settings: dict[str, Any], count: int, total: int) -> list[float]:
    return [base * factor(ScheduleSettings(**settings), step, total) for step in range(count)]


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("name", KINDS)
def test_learning_rates_equal_those_of_diffusers(name: str, length: str) -> None:
    record = json.loads((DATA / "diffusers/lr_schedules.json").read_text())
    expected: list[float] = record["values"][f"{name}_{length}"]
    warmup, total = LENGTHS[length]
    ours = rates(record["base_lr"], {"warmup_steps": warmup} | KINDS[name], len(expected), total)
    assert len(expected) == total + 11
    if name == "cosine":  # diffusers' rises again after the end; ours stays at the floor
        assert ours[total:] == [0.0] * 11
        assert expected[total + 10] > 0
        ours, expected = ours[:total], expected[:total]
    assert ours == pytest.approx(expected, rel=1e-12, abs=1e-20)


def test_learning_rates_equal_those_of_mindone() -> None:
    record = json.loads((DATA / "mindone-sdxl/lr_schedules.json").read_text())
    warm = record["warmup5_total12"]["values"]
    assert rates(1e-5, {"warmup_steps": 5}, 12, 12) == pytest.approx(warm, rel=1e-12)

    points = ((3, 0.9), (6, 0.9**2), (9, 0.9**3))
    steps = rates(2e-4, {"kind": "piecewise", "points": points}, 12, 12)
    assert steps == pytest.approx(record["multistep"]["values"], rel=1e-12)

    schedule = {"kind": "cosine", "warmup_steps": 4, "warmup_from": 0.01, "floor": 0.1}
    cosine = rates(1.0, schedule | {"decay_steps": 16}, 20, 20)
    assert cosine == pytest.approx(record["cosine"]["values"], rel=1e-12)
    assert rates(1.0, schedule, 20, 20) == pytest.approx(record["cosine_auto_decay"]["values"], rel=1e-12)

    assert rates(8e-5, {"warmup_steps": 5}, 8, 8) == pytest.approx(record["warmup5_scale8"]["values"], rel=1e-12)
    assert rates(1e-6, {"warmup_steps": 500}, 1000, 1000) == pytest.approx(
        record["warmup500_total1000"]["values"], rel=1e-12
    )
    for name, base in (("no_scheduler", 3e-6), ("default_base_no_scheduler", 2e-6)):
        assert rates(base, {}, 1, 8) == pytest.approx(record[name]["values"], rel=1e-12)


@pytest.mark.parametrize("name", ["linear_cycles", "cosine2_cycles"])
def test_restarts_equal_the_cycles_of_mindone(name: str) -> None:
    record = json.loads((DATA / "mindone-sdxl/lr_schedules.json").read_text())[name]
    params = record["config"]["scheduler_config"]["params"]
    rounds = [
        {"steps": steps, "warmup_steps": warmup, "start": start, "peak": peak, "end": end,
         "curve": name.partition("_")[0].rstrip("2")}
        for steps, warmup, start, peak, end in zip(
            *(params[key] for key in ("cycle_lengths", "warm_up_steps", "f_start", "f_max", "f_min")), strict=True
        )
    ]  # fmt: skip
    count = record["total_step"]
    ours = rates(1.0, {"kind": "rounds", "rounds": rounds}, count, count)
    assert ours == pytest.approx(record["values"], rel=1e-12)
    assert rates(1.0, {"kind": "rounds", "rounds": rounds}, 40, 40)[-1] == rounds[-1]["end"]


@pytest.mark.parametrize("case", ["script_default", "decay_0.99"])
def test_ema_decays_equal_those_of_diffusers(case: str) -> None:
    record = json.loads((DATA / "diffusers/ema_decay.json").read_text())
    decay = record["cases"][case]["args"].get("decay", 0.9999)
    for dtype, tolerance in ((torch.float64, 1e-15), (torch.float32, 1e-7)):
        updates = torch.tensor(record["steps"], dtype=dtype) - 1  # update k = 1, 2, … has k − 1 before it
        decays = torch.stack([decay_at("ramp", decay, u) for u in updates]).tolist()
        assert decays == pytest.approx(record["cases"][case]["decay"], rel=tolerance, abs=0)


@pytest.mark.parametrize("case", ["script_default", "decay_0.99"])
def test_ema_of_a_scalar_equals_that_of_diffusers(case: str) -> None:
    record = json.loads((DATA / "diffusers/ema_decay.json").read_text())
    decay = record["cases"][case]["args"].get("decay", 0.9999)
    average, updates, averages = torch.tensor(1.0, dtype=torch.float64), torch.tensor(0.0, dtype=torch.float64), []
    for k in range(1, 51):
        weight = torch.tensor(1 + k * k / 100, dtype=torch.float64)
        average = average - (1 - decay_at("ramp", decay, updates)) * (average - weight)
        updates = updates + 1
        averages.append(average.item())
    assert averages == pytest.approx(record["cases"][case]["shadow_first_50"], rel=1e-15, abs=0)
