"""Optimizers; schedules are those of the kit."""

from __future__ import annotations

from typing import Any

import pytest
from musubi_commands import changed, notes, problems, settings

WAN, FULL = "wan_train_network", "zimage_train"


@pytest.mark.parametrize(
    ("script", "words", "expected"),
    [
        (WAN, "--optimizer_type=ADAMW8BIT", {"optim.optimizer.kind": "adamw-8bit-or-adamw"}),
        (WAN, "--optimizer_args betas=0.9,0.95 eps=1e-7",
         {"optim.optimizer.betas": [0.9, 0.95], "optim.optimizer.eps": 1e-7}),
        (WAN, "--optimizer_type=schedulefree.AdamWScheduleFree --optimizer_args warmup_steps=9 --lr_scheduler=cosine",
         {"optim.optimizer.kind": "schedule-free-adamw", "optim.optimizer.warmup_steps": 9,
          "optim.optimizer.weight_decay": 0.0, "optim.optimizer.r": 0.0, "optim.optimizer.weight_lr_power": 2.0,
          "optim.schedule.warmup_steps": None, "optim.schedule.warmup_ratio": None}),
        (FULL, "--fused_backward_pass", {"optim.clip.scope": "tensor"}),
        (FULL, "--lr_scheduler=constant_with_warmup --lr_warmup_steps=10", {"optim.schedule.warmup_steps": 10}),
    ],
)  # fmt: skip
def test_settings_of_the_update(script: str, words: str, expected: dict[str, Any]) -> None:
    assert changed(script, *words.split()) == expected


@pytest.mark.parametrize(
    ("words", "name", "decay", "options"),
    [
        ("--optimizer_type=NAdam", "torch.optim.NAdam", 0.0, {}),
        ("--optimizer_type=torch.optim.AdamW --optimizer_args amsgrad=True", "torch.optim.AdamW", 0.01,
         {"amsgrad": True}),
        ("--optimizer_type=prodigyplus.ProdigyPlusScheduleFree", "prodigyplus.ProdigyPlusScheduleFree", 0.0, {}),
        ("--optimizer_type=bitsandbytes.optim.AdEMAMix8bit --optimizer_args weight_decay=0.05 betas=(0.9,0.99)",
         "bitsandbytes.optim.AdEMAMix8bit", 0.05, {"betas": [0.9, 0.99]}),
    ],
)  # fmt: skip
def test_classes_are_optimizers_of_libraries(words: str, name: str, decay: float, options: dict[str, Any]) -> None:
    values = settings(WAN, *words.split())
    found = {path.rpartition(".")[2]: value for path, value in values.items() if path.startswith("optim.optimizer.op")}
    assert {key: value for key, value in found.items() if key != "options"} == options
    assert (values["optim.optimizer.kind"], values["optim.optimizer.class_name"]) == ("library", name)
    assert values["optim.optimizer.weight_decay"] == decay


@pytest.mark.parametrize("value", ["{[]: 1}", "{1, 2}", "1j", "b'x'", "...", "1e999", "[" * 300, "-" * 100_000 + "1"])
def test_arguments_that_no_setting_can_hold_are_refused(value: str) -> None:
    [problem] = problems(WAN, "--optimizer_type=torch.optim.NAdam", "--optimizer_args", f"eps={value}")
    assert (problem.where, problem.code) == ("--optimizer_args", "E1017")
    assert "eps must be a number" in problem.message
    assert len(problem.message) < 200


@pytest.mark.parametrize("value", ["-1", "'a'", "9" * 400])
def test_weight_decay_of_a_class_is_a_number(value: str) -> None:
    [problem] = problems(WAN, "--optimizer_type=torch.optim.NAdam", "--optimizer_args", f"weight_decay={value}")
    assert problem.message.startswith("weight_decay must be a number of 0 or more, got ")


def test_package_must_be_allowed() -> None:
    words = ("--optimizer_type=prodigyopt.Prodigy", "--optimizer_args", "weight_decay=0.01")
    assert "write --allow-package prodigyopt before the --" in notes(WAN, *words)


def test_adafactor_chooses_its_own_rate_unless_told_otherwise() -> None:
    own = settings(FULL, "--optimizer_type=adafactor")
    assert own["optim.optimizer.options.relative_step"] is True
    words = ("--optimizer_type=adafactor", "--optimizer_args", "relative_step=False", "scale_parameter=False",
             "warmup_init=False", "--lr_scheduler=constant_with_warmup", "--lr_warmup_steps=10")  # fmt: skip
    values = settings(FULL, *words)
    assert values["optim.optimizer.class_name"] == "pytorch_optimizer.AdaFactor"
    assert values["optim.optimizer.options.relative_step"] is False
    assert values["optim.schedule.warmup_steps"] == 10


def test_missing_optimizer_is_named() -> None:
    [problem] = problems(WAN, "--optimizer_type=")
    assert problem.where == "--optimizer_type"
