"""Settings of single parts: written on the command line, misspelt, and without effect."""

from __future__ import annotations

import pytest

from mezzotint.errors import RecipeError
from mezzotint.settings.optimizers.adamw import AdamW
from mezzotint.settings.optimizers.lion import Lion
from mezzotint.settings.reading.read import read_text
from mezzotint.settings.sections.optim import ScheduleSettings

BOTH = "schema: 1\nmodel: {train: [denoiser, text_encoder]}\n"


def test_part_optimizer_and_schedule_are_options_by_path() -> None:
    words = [
        "optim.part_optimizer.text_encoder.kind=lion",
        "optim.part_optimizer.denoiser.eps=1e-7",
        "optim.part_schedule.text_encoder.kind=cosine",
        "optim.part_schedule.text_encoder.warmup_steps=5",
    ]
    optim = read_text(BOTH, overrides=words).recipe.optim
    assert optim.part_optimizer == {"text_encoder": Lion(), "denoiser": AdamW(eps=1e-7)}
    assert optim.part_schedule == {"text_encoder": ScheduleSettings(kind="cosine", warmup_steps=5)}
    changed = read_text(
        BOTH + "optim: {part_optimizer: {text_encoder: {kind: adamw, eps: 1e-6}}}",
        overrides=["optim.part_optimizer.text_encoder.weight_decay=0"],
    ).recipe.optim
    assert changed.part_optimizer == {"text_encoder": AdamW(eps=1e-6, weight_decay=0.0)}


@pytest.mark.parametrize(
    ("optim", "where", "words"),
    [
        ("part_optimizer: {text_encoder: {kind: sophia}}", "optim.part_optimizer.text_encoder.kind", "adafactor"),
        ("part_optimizer: {text_encoder: {esp: 1e-6}}", "optim.part_optimizer.text_encoder.esp", "unknown key"),
        ("part_schedule: {text_encoder: {kind: cosin}}", "optim.part_schedule.text_encoder.kind", "cosine"),
        ("part_optimizer: {vae: {}}", "optim.part_optimizer", "which model.train does not train"),
        ("part_schedule: {vae: {}}", "optim.part_schedule", "which model.train does not train"),
        ("schedule: {decay_steps: 9, decay_ratio: 2}", "optim.schedule.decay_steps", "give one of them"),
        ("schedule: {warmup_steps: 9, warmup_ratio: 0.5}", "optim.schedule.warmup_steps", "give one of them"),
        ("schedule: {kind: linear, after_decay: cosine}", "optim.schedule.after_decay", "cosine only"),
        ("ema: {strength: 0.1}", "optim.ema.strength", "is for optim.ema.rule=constant"),
        ("ema: {rule: ramp, start: model}", "optim.ema.start", "forgets its starting weights"),
        ("ema: {rule: constant, strength: 1.5}", "optim.ema.strength", "less than 1"),
    ],
)
def test_wrong_or_ineffective_settings_are_named(optim: str, where: str, words: str) -> None:
    with pytest.raises(RecipeError) as caught:
        read_text(BOTH + f"optim:\n  {optim}\n")
    assert caught.value.problems is not None
    [problem] = caught.value.problems
    assert problem.where == where
    assert words in f"{problem.message} {problem.remedy}"
    assert problem.line == 4
