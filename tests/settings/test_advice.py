"""Advice by setting: `explain` carries it, `check` says where a recipe leaves it; nothing where it does not apply."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mezzotint.settings import advice, reference
from mezzotint.settings.reading.paths import by_path
from mezzotint.settings.reading.read import read_text


@pytest.mark.parametrize(
    ("words", "paths"),
    [
        ([], []),
        (["run.precision=fp16", "run.frozen_dtype=same"], ["run.vae_dtype"]),
        (["run.precision=fp16", "run.frozen_dtype=same", "run.vae_dtype=fp32"], []),
        (["run.precision=fp16", "run.frozen_dtype=same", "model.vae=fix"], []),
        (["run.precision=fp16", "run.weight_dtype=same"], ["run.weight_dtype"]),
        (["objective.min_snr_gamma=1"], ["objective.min_snr_gamma"]),
        (["objective.min_snr_gamma=5", "objective.noise_offset=0.5"], []),
    ],
)
def test_sdxl_has_its_own_advice(words: list[str], paths: list[str]) -> None:
    assert left("model.family=sdxl", *words) == paths


def left(*words: str, **seen: Any) -> list[str]:
    """The settings at which a recipe leaves the advice."""
    recipe = read_text("schema: 1", overrides=["optim.lr=1e-6", *words]).recipe
    return [note.partition(" ")[0] for note in advice.notes(recipe, **seen)]


def test_advice_names_existing_settings_and_is_explained() -> None:
    assert advice.ADVICE.keys() <= by_path().keys()
    for path, words in advice.ADVICE.items():
        text = " ".join(reference.explain(path).split())
        assert text.endswith(f"Advised: {words}")
    assert "Advised" not in reference.explain("data.workers")


@pytest.mark.parametrize("name", ["sd15-lora", "subject", "style"])
def test_shipped_adapter_recipes_cause_no_advice(name: str) -> None:
    path = Path(__file__).parents[2] / "recipes" / f"{name}.yaml"
    recipe = read_text(path.read_text("utf-8")).recipe
    assert [note for note in advice.notes(recipe, prediction="epsilon") if not note.startswith("data.flip")] == []


def test_recipe_following_advice_causes_none() -> None:
    assert left(steps=1000, memory=24_000_000_000) == []


@pytest.mark.parametrize(
    ("words", "seen", "path"),
    [
        (["optim.lr=1e-5"], {}, "optim.lr"),
        (["optim.lr=6e-6", "data.resolution=768"], {}, "optim.lr"),
        (["optim.lr=3e-6", "optim.lr_batch_power=0.55", "data.batch_size=8"], {}, "optim.lr"),
        (["optim.lr=5.5e-6", "optim.lr_batch_power=0.1", "data.batch_size=2"], {}, "optim.lr_batch_power"),
        (["optim.schedule.kind=cosine", "optim.schedule.decay_steps=99"], {"steps": 100}, "optim.schedule.decay_steps"),
        (["optim.schedule.kind=linear", "optim.schedule.decay_steps=301"], {"steps": 100},
         "optim.schedule.decay_steps"),
        (["optim.accumulation=2", "data.batch_size=6"], {}, "optim.accumulation"),
        (["data.captions.dropout=0.2"], {}, "data.captions.dropout"),
        (["data.flip=0.5"], {}, "data.flip"),
        (["run.gradient_checkpointing.enabled=true"], {"memory": 25_700_000_000}, "run.gradient_checkpointing.enabled"),
        (["data.resolution=832"], {"memory": 25_700_000_000}, "run.gradient_checkpointing.enabled"),
        (["objective.noise_offset=0.2"], {}, "objective.noise_offset"),
        (["objective.noise_offset=0.05"], {"steps": 60_000}, "objective.noise_offset"),
        (["objective.pyramid_discount=0.5"], {"steps": 2000}, "objective.pyramid_discount"),
        (["objective.min_snr_gamma=3"], {}, "objective.min_snr_gamma"),
        (["objective.min_snr_gamma=5"], {"prediction": "v"}, "objective.min_snr_gamma"),
        (["objective.min_snr_gamma=5", "model.prediction=v"], {}, "objective.min_snr_gamma"),
        (["objective.zero_terminal_snr=true"], {}, "objective.zero_terminal_snr"),
        (["objective.zero_terminal_snr=true", "model.prediction=epsilon", "sample.guidance_rescale=0.7"], {},
         "objective.zero_terminal_snr"),
        (["optim.ema={rule: constant, decay: 0.99}"], {}, "optim.ema.decay"),
        (["optim.ema={rule: constant, decay: 0.999, interval: 50}"], {}, "optim.ema.decay"),
        (["optim.ema={rule: constant, strength: 0.3}"], {}, "optim.ema.strength"),
        (["optim.ema.rule=ramp"], {"memory": 17_000_000_000}, "optim.ema.device"),
        (["optim.ema={rule: ramp, device: cpu}"], {"memory": 48_000_000_000}, "optim.ema.device"),
    ],
)  # fmt: skip
def test_recipe_leaving_advice_is_reported(words: list[str], seen: dict[str, Any], path: str) -> None:
    assert left(*words, **seen) == [path]


@pytest.mark.parametrize(
    ("words", "seen"),
    [
        (["optim.lr=1e-4", "data.batch_size=64"], {}),
        (["optim.lr=1e-4", "model.adapter.kind=lora"], {}),
        (["optim.lr=1e-4", "model.adapter.path=fox.safetensors", "optim.lr_batch_power=0.5"], {}),
        (["optim.lr=5e-3", "model.train=[tokens]", "model.tokens.words={'<toy>': toy}"], {}),
        (["optim.lr=1.0", "optim.optimizer={kind: library, class_name: pytorch_optimizer.Prodigy}"], {}),
        (["optim.schedule.kind=cosine", "optim.schedule.decay_steps=150"], {"steps": 100}),
        (["objective.pyramid_discount=0.5"], {"steps": 1999}),
        (["objective.min_snr_gamma=20"], {}),
        (["objective.min_snr_gamma=5"], {"prediction": "epsilon"}),
        (["objective.min_snr_gamma=5", "objective.min_snr_form=ratio"], {"prediction": "v"}),
        (["objective.min_snr_gamma=5", "model.prediction=epsilon"], {"prediction": "v"}),
        (["objective.noise_offset=0.1"], {"steps": 5000}),
        (["run.gradient_checkpointing.enabled=true"], {"memory": 12_000_000_000}),
        (["run.gradient_checkpointing.enabled=true"], {}),
        (["optim.ema={rule: constant, decay: 0.99, interval: 50, device: cpu}"], {"memory": 24_000_000_000}),
        (["model.weights=random", "optim.lr=1", "data.flip=0.5"], {}),
    ],
)
def test_other_kinds_of_runs_cause_no_advice(words: list[str], seen: dict[str, Any]) -> None:
    assert left(*words, **seen) == []
