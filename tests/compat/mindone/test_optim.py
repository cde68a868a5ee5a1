"""What the `optim` of a YAML of MindONE's becomes: rules, schedules, what processes share."""

from __future__ import annotations

import re
from typing import Any

import pytest
from mindone_yaml import PLAIN, notes, recipe, replaced, settings

from mezzotint.errors import RecipeError
from mezzotint.settings.reading.translation import Launched


@pytest.mark.parametrize(
    ("scheduler", "expected"),
    [
        ("LambdaWarmUpScheduler\n    params: {warm_up_steps: 500}", {"kind": "constant", "warmup_steps": 500}),
        (
            "LambdaWarmUpCosineScheduler\n    params: {warm_up_steps: 4, lr_min: 0.1, lr_max: 1.0, lr_start: 0.01, "
            "max_decay_steps: 16}",
            {"kind": "cosine", "warmup_steps": 4, "warmup_from": 0.01, "floor": 0.1, "decay_steps": 16},
        ),
        (
            "LambdaWarmUpCosineScheduler\n    params: {warm_up_steps: 4, lr_min: 0.5, lr_max: 2.0}",
            {"kind": "cosine", "warmup_steps": 4, "floor": 0.25, "decay_steps": None},
        ),
        (
            "MultiStepLR\n    params: {milestones: [3, 6], gamma: 0.9}",
            {"kind": "piecewise", "points": ((3, pytest.approx(0.9)), (6, pytest.approx(0.81)))},
        ),
    ],
)
def test_schedulers_are_translated(scheduler: str, expected: dict[str, Any]) -> None:
    text = replaced("optim:\n", f"optim:\n  scheduler_config:\n    target: gm.lr_scheduler.{scheduler}\n")
    optim = recipe(text).optim
    schedule = optim.schedule.model_dump()
    assert {key: schedule[key] for key in expected} == expected
    assert optim.lr == pytest.approx(2e-6 if "lr_max: 2.0" in scheduler else 1e-6)


def test_cyclic_schedulers_are_translated() -> None:
    lists = "{warm_up_steps: [2, 3], f_min: [0.1, 0.0], f_max: [1.0, 0.5], f_start: [0.01, 0.1], cycle_lengths: [8, 9]}"
    for name, curve in (("LambdaWarmUpCosineScheduler2", "cosine"), ("LambdaLinearScheduler", "linear")):
        text = replaced(
            "optim:\n", f"optim:\n  scheduler_config:\n    target: gm.lr_scheduler.{name}\n    params: {lists}\n"
        )
        rounds = recipe(text).optim.schedule.rounds
        assert [(r.steps, r.warmup_steps, r.start, r.peak, r.end, r.curve) for r in rounds] == [
            (8, 2, 0.01, 1.0, 0.1, curve), (9, 3, 0.1, 0.5, 0.0, curve)
        ]  # fmt: skip
        halved = recipe(text, "--gradient_accumulation_steps=2").optim.schedule.rounds
        assert [(r.steps, r.warmup_steps) for r in halved] == [(4, 1), (5, 2)]


def test_warmup_is_counted_in_steps() -> None:
    text = replaced(
        "optim:\n",
        "optim:\n  scheduler_config:\n    target: a.LambdaWarmUpScheduler\n    params: {warm_up_steps: 500}\n",
    )
    assert recipe(text, "--gradient_accumulation_steps=3").optim.schedule.warmup_steps == 167
    assert "500 batches are 167 steps" in notes(text, "--gradient_accumulation_steps=3")


def test_default_optimizer_is_sgd() -> None:
    text = re.sub(r"optim:\n(?:  .*\n)+", "optim: {}\n", PLAIN)
    translated = recipe(text)
    optimizer: Any = translated.optim.optimizer
    assert (translated.optim.lr, optimizer.kind, optimizer.class_name) == (1e-6, "library", "torch.optim.SGD")
    text = replaced("mindspore.nn.AdamWeightDecay", "mindspore.nn.SGD",
                    replaced("      beta1: 0.9\n      beta2: 0.999\n", "      momentum: 0.9\n"))  # fmt: skip
    optimizer = recipe(text).optim.optimizer
    assert (optimizer.options, optimizer.weight_decay) == ({"momentum": 0.9}, 0.01)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (replaced("nn.AdamWeightDecay\n    params:\n", "nn.AdamWeightDecayZeRO1\n    params:\n      shard_size: 2\n"),
         {"parameters": False, "group": 2}),
        (replaced("AdamWeightDecay", "AdamWeightDecayZeRO1"), {"parameters": False, "group": None}),
        (replaced("DiscreteSampling", "DiscreteSamplingForZero3"), {"parameters": True, "group": None}),
    ],
)  # fmt: skip
def test_sharded_optimizers_and_weights_are_translated(text: str, expected: dict[str, Any]) -> None:
    run = settings(text, "--is_parallel=True", launched=Launched(4, None, "torchrun"))[0]["run"]
    assert (run["runtime"], run["shard"]) == ("fsdp", expected)
    alone, notes_alone = settings(text)
    assert (alone["run"]["runtime"], "shard" in alone["run"]) == ("auto", False)
    assert "so nothing is sharded" in notes_alone
    if expected["group"]:
        with pytest.raises(RecipeError, match="does not divide the 3 processes"):
            settings(text, "--is_parallel=True", launched=Launched(3, None, "torchrun"))
