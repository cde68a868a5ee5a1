"""Optimizers, schedules, warm-up, clipping; schedules against numbers that tools/kohya_formulas.py works out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from kohya_commands import changed, notes, recipe, settings, translate

from mezzotint.compat.kohya._optim import OPTIMIZERS, write_optimizer
from mezzotint.settings.reading.translation import Launched
from mezzotint.training import lr

NUMBERS: dict[str, Any] = json.loads((Path(__file__).parent / "formulas.json").read_text("utf-8"))
_EXTRA = {
    "cosine_with_restarts": ("--lr_scheduler_num_cycles=3",), "polynomial": ("--lr_scheduler_power=2",),
    "cosine_with_min_lr": ("--lr_scheduler_min_lr_ratio=0.1",), "inverse_sqrt": ("--lr_scheduler_timescale=20",),
    "warmup_stable_decay": ("--lr_scheduler_min_lr_ratio=0.1", "--lr_decay_steps=0.3"),
}  # fmt: skip


@pytest.mark.parametrize("name", NUMBERS["schedules"])
def test_schedules(name: str) -> None:
    words = (f"--lr_scheduler={name}", "--lr_warmup_steps=10%", "--learning_rate=1e-4", *_EXTRA.get(name, ()))
    schedule = recipe("train_db", *words).optim.schedule
    translated = [lr.factor(schedule, step, 100) for step in NUMBERS["steps"]]
    assert translated == pytest.approx(NUMBERS["schedules"][name], abs=1e-9)


@pytest.mark.parametrize("text", NUMBERS["warmup"])
def test_warmup_in_steps_share_or_percentage(text: str) -> None:
    schedule = recipe("train_db", "--lr_scheduler=cosine", f"--lr_warmup_steps={text}").optim.schedule
    assert lr.resolve_span(schedule, 1600)[0] == NUMBERS["warmup"][text]


def test_warmup_in_steps_is_divided_by_processes() -> None:
    words = ("--lr_scheduler=cosine", "--lr_warmup_steps=100")
    translated = translate("train_db", *words, launched=Launched(processes=4))
    assert translated.settings["optim"]["schedule"]["warmup_steps"] == 25
    assert any("100 divided by 4 processes" in str(note) for note in translated.notes)


def test_schedules_with_flags_of_their_own() -> None:
    words = ("--lr_scheduler=warmup_stable_decay", "--lr_decay_steps=100", "--lr_warmup_steps=0.1")
    translated = translate("train_db", *words, launched=Launched(processes=4)).settings["optim"]["schedule"]
    assert (translated["cooldown_steps"], translated["warmup_ratio"]) == (25, 0.1)
    assert settings("train_db", "--lr_scheduler=warmup_stable_decay")["optim.schedule.kind"] == "constant"
    many = translate("train_db", "--lr_scheduler=inverse_sqrt", launched=Launched(processes=4)).settings
    assert many["optim"]["schedule"]["timescale_steps"] == 2500
    assert "optim.schedule.timescale_steps" not in settings("train_db", "--lr_scheduler=inverse_sqrt")
    assert "no effect with --lr_scheduler=cosine" in notes("train_db", "--lr_scheduler=cosine", "--lr_decay_steps=5")


@pytest.mark.parametrize("zero", ["0", "0.0", "0%"])
def test_zero_of_any_form_is_no_decay_and_no_warmup(zero: str) -> None:
    decay = settings("train_db", "--lr_scheduler=warmup_stable_decay", f"--lr_decay_steps={zero}")
    assert decay["optim.schedule.kind"] == "constant"
    words = ("--lr_scheduler=inverse_sqrt", f"--lr_warmup_steps={zero}")
    many = translate("train_db", *words, launched=Launched(processes=4)).settings
    assert many["optim"]["schedule"]["timescale_steps"] == 2500


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_each_optimizer_gives_a_valid_recipe(name: str) -> None:
    translated = recipe("train_db", f"--optimizer_type={name.upper()}").optim.optimizer
    target = OPTIMIZERS[name][0]
    assert target in (translated.kind, getattr(translated, "class_name", ""))


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("--optimizer_type=Prodigy --learning_rate=1 --optimizer_args d_coef=2 use_bias_correction=True "
         "safeguard_warmup=True weight_decay=0.01 betas=0.9,0.99 decouple=True",
         {"kind": "prodigy", "d_coef": 2, "bias_correction": True, "safeguard_warmup": True, "weight_decay": 0.01,
          "betas": (0.9, 0.99), "d_beta": None}),
        ("--optimizer_type=Adafactor --optimizer_args scale_parameter=False relative_step=False warmup_init=False",
         {"kind": "library", "class_name": "pytorch_optimizer.AdaFactor", "weight_decay": 0.0,
          "options": {"betas": [None, 0.9999999], "eps1": 1e-30, "eps2": 1e-3, "clip_threshold": 1.0,
                      "decay_rate": -0.8, "scale_parameter": False, "relative_step": False, "warmup_init": False}}),
        ("--optimizer_type=SGDNesterov --optimizer_args momentum=0.8",
         {"class_name": "torch.optim.SGD", "options": {"momentum": 0.8, "nesterov": True}}),
        ("--optimizer_type=DAdaptAdam --learning_rate=1 --optimizer_args decouple=True weight_decay=0.2",
         {"class_name": "pytorch_optimizer.DAdaptAdam", "weight_decay": 0.2,
          "options": {"betas": [0.9, 0.999], "eps": 1e-8, "d0": 1e-6, "weight_decouple": True}}),
        ("--optimizer_type=AdamWScheduleFree --optimizer_args betas=0.95,0.99 warmup_steps=10 weight_decay=0.01",
         {"kind": "schedule-free-adamw", "betas": (0.95, 0.99), "warmup_steps": 10, "weight_decay": 0.01, "r": 0.0}),
        ("--optimizer_type=prodigyplus.ProdigyPlusScheduleFree --learning_rate=1 --optimizer_args use_speed=True",
         {"class_name": "prodigyplus.ProdigyPlusScheduleFree", "has_evaluation_weights": True}),
        ("--optimizer_type=schedulefree.RAdamScheduleFree --optimizer_args r=1",
         {"class_name": "schedulefree.RAdamScheduleFree",
          "options": {"betas": [0.9, 0.999], "eps": 1e-8, "r": 1, "weight_lr_power": 2.0, "silent_sgd_phase": True}}),
        ("--optimizer_type=Lion8bit",
         {"class_name": "bitsandbytes.optim.Lion8bit", "options": {"betas": [0.9, 0.99]}}),
    ],
)  # fmt: skip
def test_arguments_of_optimizers(words: str, expected: dict[str, Any]) -> None:
    translated = recipe("train_db", *words.split()).optim.optimizer
    assert {name: getattr(translated, name) for name in expected} == expected


def test_adafactor_with_relative_step_chooses_its_rate() -> None:
    words = ("--optimizer_type=Adafactor", "--lr_scheduler=cosine", "--lr_warmup_steps=10")
    assert settings("train_db", *words)["optim.schedule.kind"] == "constant"
    assert notes("train_db", *words).count("has no effect, since Adafactor chooses its own rate") == 2
    own = notes("train_db", "--optimizer_type=Adafactor", "--lr_scheduler=adafactor:1e-3")
    assert "has no effect" not in own
    assert "factor of it; 1 is usual" in notes("train_db", "--optimizer_type=Prodigy")


def test_schedules_have_no_effect_on_averages_of_weights() -> None:
    words = ("--optimizer_type=ProdigyPlusScheduleFree", "--lr_scheduler=cosine", "--lr_warmup_steps=10",
             "--lr_decay_steps=5", "--lr_scheduler_min_lr_ratio=0.1")  # fmt: skip
    assert settings("train_db", *words)["optim.schedule.kind"] == "constant"
    said = notes("train_db", *words)
    assert said.count("has no effect with ProdigyPlusScheduleFree, as in the script") == 4
    assert "write --allow-package prodigyplus before the --" in said


@pytest.mark.parametrize(
    ("script", "word"),
    [("sdxl_train", "--fused_backward_pass"), ("flux_train", "--blockwise_fused_optimizers"),
     ("sdxl_train", "--fused_optimizer_groups=10")],
)  # fmt: skip
def test_fused_updates_clip_by_tensor(script: str, word: str) -> None:
    assert changed(script, word) == {"optim.clip.scope": "tensor"}
    rounds = "rounds weights in bf16 at random" in notes(script, word, "--full_bf16", "--mixed_precision=bf16")
    assert rounds == (word == "--fused_backward_pass")


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_each_optimizer_comes_back_with_its_arguments(name: str) -> None:
    changed = {"weight_decay": 0.03, "d0": 1e-5, "momentum": 0.7, "betas": (0.8, 0.95), "relative_step": False}
    arguments = [f"{key}={value}" for key, value in changed.items() if key in OPTIMIZERS[name][1]]
    rule = recipe("train_db", f"--optimizer_type={name}", "--optimizer_args", *arguments).optim.optimizer
    written, again = write_optimizer(rule)
    assert OPTIMIZERS[written] == OPTIMIZERS[name]
    assert set(again) == set(arguments)
