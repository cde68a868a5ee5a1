"""Derived values that `check` prints."""

from __future__ import annotations

from typing import Any


def test_check_prints_effective_rates_ema_decay_and_unused_settings(check_of: Any) -> None:
    notes = check_of(
        model__train=["denoiser", "text_encoder"],
        optim__lr=2e-6,
        optim__lr_batch_power=0.55,
        optim__part_lr={"text_encoder": 1e-6},
        optim__ema__rule="constant",
        optim__ema__strength=0.1,
        run__steps=1000,
    ).notes
    assert any("(4 × 1)^0.55 = 2.144: denoiser 4.287e-06, text_encoder 2.144e-06" in note for note in notes)
    assert any("over 1,000 steps with an update every 1: decay 0.9977000638" in note for note in notes)
    [plain] = check_of().notes
    assert "vae: not random" in plain


def test_check_counts_optimizer_state_of_each_part(check_of: Any) -> None:
    both = {"model__train": ["denoiser", "text_encoder"]}
    adam = check_of(**both).memory
    mixed = check_of(optim__part_optimizer={"text_encoder": {"kind": "lion"}}, **both).memory
    [moved] = [part.trained for part in adam.parts if part.name == "text_encoder"]
    assert adam.optimizer - mixed.optimizer == (8 - 4) * moved


def test_check_shows_rates_by_pattern_and_counts_only_what_is_trained(check_of: Any) -> None:
    rates = {"denoiser/mid_block.*": 2e-6, "denoiser/conv_in.*": 0, "~denoiser/gone.*": 1e-6}
    checked, plain = check_of(optim__lr=1e-6, optim__part_lr=rates), check_of(optim__lr=1e-6)
    [line] = [text for title, text in checked.description if title == "update"]
    assert "1e-06 (2e-06 for denoiser/mid_block.*; frozen: denoiser/conv_in.*; 1e-06 for ~denoiser/gone.*)" in line
    assert "optim.part_lr: denoiser/gone.* names nothing in this model" in checked.notes
    assert checked.memory.optimizer < plain.memory.optimizer


def test_rate_of_zero_is_a_problem_unless_a_pattern_has_another(check_of: Any) -> None:
    assert [problem.code for problem in check_of(optim__lr=0).problems] == ["E1602"]
    assert check_of(optim__lr=0, optim__part_lr={"denoiser/mid_block.*": 1e-6}).problems == []
