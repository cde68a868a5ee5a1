"""Update rules, rates, averages and loss scale against stored results of EveryDream2."""

from __future__ import annotations

import json
import math
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from mezzotint.compat.everydream2.adacoor import AdaCoorStep
from mezzotint.compat.everydream2.adacoor_settings import AdaCoor
from mezzotint.settings.recipe import Recipe
from mezzotint.settings.sections.model import ModelSettings
from mezzotint.settings.sections.optim import OptimSettings, ScheduleSettings
from mezzotint.settings.sections.run import RunSettings, ScalerSettings
from mezzotint.tasks.resolving import rate_factor
from mezzotint.training import lr
from mezzotint.training.ema import Ema, decay_for
from mezzotint.training.optimizers.base import StepInputs
from mezzotint.training.precision.policy import LossScale, Precision
from mezzotint.training.trainable import select_trained_parameters

DATA = Path(__file__).parents[2] / "parity" / "data" / "everydream2"
RECORD: dict[str, Any] = json.loads((DATA / "optimizer.json").read_text())
AVERAGES: dict[str, Any] = json.loads((DATA / "ema.json").read_text())
ADACOOR: list[dict[str, Any]] = json.loads((DATA / "adacoor.json").read_text())


@pytest.mark.parametrize("case", ADACOOR, ids=lambda case: case["key"])
def test_adacoor_weights_and_state_are_bit_exact(case: dict[str, Any]) -> None:
    tensors = load_file(DATA / "adacoor.safetensors")
    weights = {f"denoiser/{name}": tensors[f"{case['key']}.{name}.init"].clone() for name in "pq"}
    rule = AdaCoorStep(AdaCoor(eps=case["eps"]), weights)
    one = torch.ones(())
    for step in range(case["steps"]):
        grads = [tensors[f"{case['key']}.{name}.grad{step:02d}"].clone() for name in "pq"]
        names, masters = list(weights), list(weights.values())
        rule.step(StepInputs(names, masters, grads, lr=0.5, weight_decay=0.0, scale=one, found_inf=0 * one))
        for name in "pq":
            kept = rule.tensors()[f"opt.sum/denoiser/{name}"]
            assert kept.dtype == torch.bfloat16
            assert torch.equal(kept, tensors[f"{case['key']}.{name}.vt{step:02d}"]), (step, name)
            assert torch.equal(weights[f"denoiser/{name}"], tensors[f"{case['key']}.{name}.after{step:02d}"])


def schedule(case: dict[str, Any], kind: str, peak: float) -> ScheduleSettings:
    """As EveryDream2's settings mean it: `constant` has no warm-up, `polynomial` ends at 1e-7."""
    values: dict[str, Any] = {"kind": kind, "floor": 1e-7 / peak if kind == "polynomial" else 0.0}
    if kind == "cosine":
        values["after_decay"] = "cosine"
    if "lr_decay_steps" in case["args"]:
        values |= {"decay_steps": case["decay"], "warmup_steps": case["warmup"]}
    elif kind != "constant":
        values |= {"decay_ratio": 1.5, "warmup_ratio": 0.02}
    return ScheduleSettings(**values)


@pytest.mark.parametrize("case", RECORD["lr_curves"], ids=lambda case: case["name"])
@pytest.mark.parametrize("network", ["unet", "te"])
def test_learning_rates_match_everydream(case: dict[str, Any], network: str) -> None:
    base = case["base_in"].get("lr_scheduler", "constant")
    kind = base if network == "unet" or "lr_scheduler" in case["te_in"] else "cosine"
    theirs = case[f"{network}_lr_before_step"]
    steps = case["epoch_len"] * case["max_epochs"]
    peak = max(theirs)
    settings = schedule(case, kind, peak)
    if kind != "constant":
        assert lr.resolve_span(settings, steps) == (case["warmup"], case["decay"])
    ours = [peak * lr.factor(settings, step, steps) for step in range(len(theirs))]
    assert ours == pytest.approx(theirs, rel=1e-9, abs=1e-18)


@pytest.mark.parametrize("case", RECORD["automatic"], ids=str)
def test_automatic_decay_and_warmup_match_everydream(case: dict[str, Any]) -> None:
    values: dict[str, Any] = {}
    if "lr_decay_steps" in case["args"]:
        values["decay_steps"] = case["args"]["lr_decay_steps"]
    else:
        values["decay_ratio"] = 1.5
    if "lr_warmup_steps" in case["args"]:
        values["warmup_steps"] = case["args"]["lr_warmup_steps"]
    else:
        values["warmup_ratio"] = 0.02
    ours = lr.resolve_span(ScheduleSettings(**values), case["epoch_len"] * case["max_epochs"])
    assert ours == (case["args_lr_warmup_steps"], case["args_lr_decay_steps"])


def test_warmup_of_two_percent_is_rounded_down() -> None:
    for decay in range(1, 20_000):
        settings = ScheduleSettings(decay_steps=decay, warmup_ratio=0.02)
        assert lr.resolve_span(settings, 1)[0] == decay // 50


@pytest.mark.parametrize("case", RECORD["scale_lr"], ids=str)
def test_scaled_learning_rates_match_everydream(case: dict[str, Any]) -> None:
    recipe = Recipe.model_validate(
        {
            "data": {"batch_size": case["batch_size"]},
            "optim": {"accumulation": case["grad_accum"], "lr_batch_power": 0.55},
        }
    )
    assert rate_factor(recipe) == pytest.approx(case["multiplier"], rel=1e-12)
    assert case["lr"] * rate_factor(recipe) == pytest.approx(case["scaled_lr"], rel=1e-12)


@pytest.mark.parametrize("case", AVERAGES["strength_cases"], ids=str)
def test_ema_decay_from_strength_matches_everydream(case: dict[str, Any]) -> None:
    batches = case["epoch_len_batches"] * case["max_epochs"]
    decay = decay_for(case["ema_strength_target"], interval=case["effective_interval"], steps=batches)
    assert decay == pytest.approx(case["ema_decay_rate"], rel=1e-12)


def test_five_ema_updates_match_everydream() -> None:
    tensors, record = load_file(DATA / "ema.safetensors"), AVERAGES["update_ema"]
    settings = OptimSettings(ema={"rule": "constant", "decay": record["decay"]})
    begun = {f"denoiser/{name}": tensors[f"ema.init.{name}"] for name in ("weight", "bias")}
    average = Ema(begun, settings)
    for step in range(record["steps"]):
        now = {f"denoiser/{name}": tensors[f"model.{step}.{name}"] for name in ("weight", "bias")}
        average.follow(now, torch.zeros(()))
        for name in ("weight", "bias"):
            expected = tensors[f"ema.{step}.{name}"]
            torch.testing.assert_close(average.weights[f"denoiser/{name}"], expected, rtol=1e-6, atol=1e-7)


class Clip(nn.Module):
    """The names of a text encoder of four layers."""

    def __init__(self) -> None:
        super().__init__()
        self.embeddings = nn.ModuleDict(
            {"token_embedding": nn.Embedding(3, 2), "position_embedding": nn.Embedding(3, 2)}
        )
        self.encoder = nn.ModuleDict({"layers": nn.ModuleList([nn.Linear(2, 2) for _ in range(4)])})
        self.final_layer_norm = nn.LayerNorm(2)


def freezing(config: dict[str, Any]) -> dict[str, Any]:
    """`text_encoder_freezing` in our settings."""
    last = config.get("unfreeze_last_n_layers")
    front = config.get("freeze_front_n_layers", 0)
    freeze = [f"text_encoder/*layers.{n}.*" for n in range(front)]
    if front > 0 or config.get("freeze_embeddings"):
        freeze.append("text_encoder/*embeddings*")
    if config.get("freeze_embeddings") is False:
        freeze.append("!text_encoder/*embeddings*")
    if config.get("freeze_final_layer_norm"):
        freeze.append("text_encoder/*final_layer_norm*")
    return {"last_layers": -front if front < 0 else last, "freeze": freeze}


@pytest.mark.parametrize(
    "case", [case for case in RECORD["text_encoder_freezing"] if isinstance(case["trained"], list)], ids=str
)
def test_trained_text_encoder_layers_match_everydream(case: dict[str, Any]) -> None:
    settings = ModelSettings(train=("text_encoder",), **freezing(case["config"] or {}))
    trained = select_trained_parameters({"text_encoder": Clip()}, settings, ("denoiser", "text_encoder"))
    assert [f"text_model.{name.removeprefix('text_encoder/')}" for name in trained] == case["trained"]
    assert any(fnmatchcase(name, "*encoder.layers.3.*") for name in trained)


def test_loss_scale_growth_matches_everydream() -> None:
    first, *later = RECORD["grad_scaler_schedule"]
    stages = tuple((one["global_step"], one["growth_factor"], one["growth_interval"]) for one in later)
    settings = ScalerSettings(
        init=2**17.5, growth=first["growth_factor"], growth_interval=first["growth_interval"], stages=stages
    )
    assert settings.init == pytest.approx(first["init_scale"], rel=1e-15)
    scale = LossScale(settings, Precision.of(RunSettings(precision="fp16")), torch.device("cpu"))
    for number, (start, growth, interval) in enumerate(stages):
        assert scale.pace(start) == (growth, interval)
        assert scale.pace(start - 1) == (stages[number - 1][1:] if number else (2.0, 25))
        assert later[number]["backoff_factor"] == pytest.approx(1 / growth, rel=1e-15)
    # one overflow at each pace
    value, clean = 2**17.5, torch.zeros(())
    for step in (0, 499, 500, 2000, 4000):
        growth = scale.pace(step)[0]
        scale.update(clean + 1, step)
        value /= growth
        assert float(scale.scale) == pytest.approx(value, rel=1e-6)
    for step in range(500, 600):
        scale.update(clean, step)
    assert math.isclose(float(scale.scale), 1.8 * value, rel_tol=1e-6)
