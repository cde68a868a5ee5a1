"""Rows of the section `optim` for parts, rates that depend on the run, and the average's strength and start; of the
text encoder's last layers; and of the growth of fp16's loss scale."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from mezzotint.errors import RecipeError, WeightsError
from mezzotint.settings.reading.read import read_text
from mezzotint.tasks import assemble
from mezzotint.tasks.train import ema_start
from mezzotint.training import lr
from support.messages import refusal

Prepare = Callable[..., Any]
PLAIN = {"optim__clip__norm": "null", "optim__ema__rule": "none", "optim__optimizer__weight_decay": 0}
BOTH = {"model__train": ["denoiser", "text_encoder"], "data__cache__text": False}


# breaks if all parts use optim.optimizer
@pytest.mark.effect("optim.part_optimizer")
def test_part_optimizer_sets_the_optimizer_of_a_part(prepare: Prepare) -> None:
    rules = {"text_encoder": {"kind": "lion", "weight_decay": 0.0}}
    ready = prepare(optim__part_optimizer=rules, optim__lr=1e-2, **PLAIN, **BOTH)
    step = ready.step()
    assert step.largest("denoiser") == pytest.approx(1e-2, rel=1e-3)
    assert step.largest("text_encoder") == pytest.approx(1e-2, rel=1e-3)
    states = {tuple(name.split("/")[:2]) for name in ready.trainer.tensors() if name.startswith("opt.") and "/" in name}
    assert states == {("opt.mean", "denoiser"), ("opt.square", "denoiser"), ("opt.mean", "text_encoder")}
    assert "optim.part_optimizer names vae, which model.train does not train" in refusal(
        'optim.part_optimizer={"vae": {"kind": "adamw"}}'
    )


# breaks if all parts use optim.schedule
@pytest.mark.effect("optim.part_schedule")
def test_part_schedule_sets_the_schedule_of_a_part(prepare: Prepare) -> None:
    curves = {"text_encoder": {"kind": "cosine", "decay_steps": 4}}
    ready = prepare(optim__part_schedule=curves, optim__lr=2e-3, **PLAIN, **BOTH)
    rates = [ready.trainer.train_step.rates(step) for step in (0, 2, 4, 7)]
    assert [rate["denoiser"] for rate in rates] == [2e-3] * 4
    assert [rate["text_encoder"] for rate in rates] == pytest.approx([2e-3, 1e-3, 0.0, 0.0])
    assert ready.step().report.rates == {"denoiser": 2e-3, "text_encoder": 2e-3}
    assert "optim.part_schedule names vae" in refusal('optim.part_schedule={"vae": {"kind": "linear"}}')


# breaks if the factor is for another batch size, does not reach a part, or is neither logged nor printed
@pytest.mark.effect("optim.lr_batch_power")
def test_lr_batch_power_scales_every_rate_with_the_batch(prepare: Prepare) -> None:
    settings = {"data__batch_size": 2, "optim__accumulation": 2, "optim__part_lr": {"text_encoder": 1e-4}}
    for power, factor in ((0.5, 2.0), (1, 4.0), (0.55, 4**0.55)):
        ready = prepare(optim__lr=1e-3, optim__lr_batch_power=power, **settings, **PLAIN, **BOTH)
        expected = {"denoiser": pytest.approx(factor * 1e-3), "text_encoder": pytest.approx(factor * 1e-4)}
        assert ready.trainer.train_step.rates(0) == expected
    log = (ready.folder.path / "run.log").read_text()
    assert "(2 × 2)^0.55 = 2.144: denoiser 0.002144, text_encoder 0.0002144" in log
    step = ready.step()
    assert step.report.rates == expected
    assert step.largest("denoiser") == pytest.approx(factor * 1e-3, rel=1e-3)


def factor(step: int, total: int = 100, **schedule: Any) -> float:
    words = [f"optim.schedule.{name}={value}" for name, value in schedule.items()]
    return lr.factor(read_text("schema: 1", overrides=words).recipe.optim.schedule, step, total)


# breaks if the decay always has the run's length, or the share is rounded up
@pytest.mark.effect("optim.schedule.decay_ratio")
def test_decay_ratio_is_relative_to_the_run(prepare: Prepare) -> None:
    assert factor(100, kind="cosine", decay_ratio=1.5) == pytest.approx(0.25)
    assert factor(50, kind="linear", decay_ratio=0.5) == 0.0
    assert factor(7, total=5, kind="linear", decay_ratio=1.5) == 0.0, "5 steps and a half of it are 7"
    assert factor(6, total=5, kind="linear", decay_ratio=1.5) == pytest.approx(1 / 7)
    ready = prepare(optim__schedule__kind="cosine", optim__schedule__decay_ratio=2, optim__lr=1e-3, **PLAIN)
    assert ready.trainer.train_step.rates(8)["denoiser"] == pytest.approx(0.5e-3), "the run has 8 steps"
    assert "give one of them" in refusal("optim.schedule.decay_steps=9", "optim.schedule.decay_ratio=2")


# breaks if the warm-up is a share of the run, or is combined with warmup_steps
@pytest.mark.effect("optim.schedule.warmup_ratio")
def test_warmup_ratio_is_relative_to_the_decay() -> None:
    points = {"kind": "linear", "decay_ratio": 1.5, "warmup_ratio": 0.02}
    assert [factor(step, **points) for step in (0, 1, 3)] == pytest.approx([0.0, 1 / 3, 1.0])
    assert [factor(step, total=99, **points) for step in (1, 2)] == pytest.approx([0.5, 1.0]), "2 of 148, rounded down"
    assert factor(5, kind="constant", warmup_ratio=0.1) == 0.5
    assert "give one of them" in refusal("optim.schedule.warmup_steps=9", "optim.schedule.warmup_ratio=0.1")


# breaks if a cosine stays at its floor, or another curve continues
@pytest.mark.effect("optim.schedule.after_decay")
def test_after_decay_cosine_rises_again() -> None:
    past = (40, 60, 80, 100)
    assert [factor(step, kind="cosine", decay_steps=40) for step in past] == [0.0] * 4
    results = [factor(step, kind="cosine", decay_steps=40, after_decay="cosine") for step in past]
    assert results == pytest.approx([0.5 * (1 + math.cos(math.pi * step / 40)) for step in past])
    assert results == pytest.approx([0.0, 0.5, 1.0, 0.5])
    assert factor(80, kind="cosine", decay_steps=40, after_decay="cosine", floor=0.2) == pytest.approx(1.0)
    assert "cosine only" in refusal("optim.schedule.kind=linear", "optim.schedule.after_decay=cosine")


# breaks if the decay of the recipe is used, the interval is ignored, or the derived value is not recorded
@pytest.mark.effect("optim.ema.strength")
def test_ema_strength_sets_the_decay_from_the_run_length(prepare: Prepare) -> None:
    settings = {"optim__ema__rule": "constant", "optim__ema__strength": 0.1, "optim__ema__interval": 2}
    ready = prepare(optim__lr=1e-2, run__steps=4, **settings)
    weights = [ready.trainer.model.update.masters]
    weights = [{name: w.clone() for name, w in weights[0].items()}]
    weights += [ready.step().after for _ in range(4)]
    decay = 0.1**0.5
    average = weights[0]
    for step in (2, 4):
        average = {name: decay * s + (1 - decay) * weights[step][name] for name, s in average.items()}
    for name, tensor in ready.trainer.model.update.ema.weights.items():
        torch.testing.assert_close(tensor, average[name], rtol=1e-4, atol=1e-6)
    assert "decay 0.316227766" in (ready.folder.path / "run.log").read_text()
    [started] = [one for one in ready.folder.events() if one["event"] == "started"]
    assert started["ema_decay"] == pytest.approx(decay)
    ready.trainer.host.save(ready.trainer)
    [kept] = (ready.folder.path / "checkpoints").iterdir()
    values = json.loads((kept / "state.json").read_text())
    assert values["resolved"]["ema_decay"] == pytest.approx(decay)
    assert values["recipe"]["optim"]["ema"]["strength"] == 0.1, "the recipe stays as it was written"
    assert "optim.ema.rule=constant" in refusal("optim.ema.strength=0.1")


@pytest.fixture
def exported(prepare: Prepare) -> Path:
    """A model of the same configuration with other weights: a few steps away."""
    ready = prepare(optim__lr=1e-1, run__export__single_file=True, **PLAIN)
    for _ in range(2):
        ready.step()
    ready.trainer.host.export(ready.trainer)
    return next(path for path in ready.folder.exports.iterdir() if path.is_dir())


# breaks if the average starts at the trained weights, the trained weights at its start, or resuming starts it again
@pytest.mark.slow
@pytest.mark.effect("optim.ema.start")
def test_ema_start_is_the_initial_average(prepare: Prepare, exported: Path) -> None:
    for start in (exported, exported.with_suffix(".safetensors")):
        settings = {"optim__ema__rule": "constant", "optim__ema__decay": 0.5, "optim__ema__start": start}
        ready = prepare(**settings)
        plain = prepare()
        begun = {name: t.clone() for name, t in ready.trainer.model.update.ema.weights.items()}
        there = ready.family.of(ema_start.settings_of(ready.recipe)).parts()["denoiser"]
        for name, parameter in there.named_parameters():
            assert torch.equal(begun[f"denoiser/{name}"], parameter)
        masters = plain.trainer.model.update.masters
        assert all(torch.equal(masters[name], t) for name, t in ready.trainer.model.update.masters.items())
        assert any(not torch.equal(masters[name], begun[name]) for name in begun)
        step = ready.step()
        for name, tensor in ready.trainer.model.update.ema.weights.items():
            torch.testing.assert_close(tensor, 0.5 * begun[name] + 0.5 * step.after[name], rtol=1e-4, atol=1e-6)
    ready.trainer.progress.step = 1
    ready.trainer.host.save(ready.trainer)
    again = prepare(run__folder=ready.folder.path, **settings)
    for name, tensor in again.trainer.model.update.ema.weights.items():
        assert torch.equal(tensor, ready.trainer.model.update.ema.weights[name])
    for rule in ("none", "ramp", "saturating"):
        assert "optim.ema.start is for optim.ema.rule=constant" in refusal(
            f"optim.ema.rule={rule}", "optim.ema.start=somewhere"
        )


# breaks if weights of other shapes are accepted, or the error names no remedy
@pytest.mark.effect("optim.ema.start")
def test_ema_start_of_another_model_is_refused(prepare: Prepare, another_sd: Path) -> None:
    with pytest.raises(
        WeightsError, match=r"other is not the same model .* have another shape in it .*; name a model"
    ) as e:
        prepare(optim__ema__rule="constant", optim__ema__start=another_sd)
    assert e.value.code == "E1417"


def trained_layers(prepare: Prepare, **settings: Any) -> list[str]:
    ready = prepare(data__cache__text=False, **{"model__train": ["text_encoder"], "optim__lr": 1e-3} | settings)
    encoder = ready.family.parts()["text_encoder"]
    before = {name: p.detach().clone() for name, p in encoder.named_parameters()}
    ready.step()
    moved = {name for name, p in encoder.named_parameters() if not torch.equal(before[name], p.detach())}
    assert moved == {name.removeprefix("text_encoder/") for name in ready.trainer.model.trained}
    return sorted({name.split(".self_attn")[0].split(".mlp")[0].split(".layer_norm")[0] for name in moved})


# breaks if the first layers or the embeddings change, or the last layers or what follows them do not
@pytest.mark.effect("model.last_layers")
def test_last_layers_limits_text_encoder_training(prepare: Prepare) -> None:
    everything = trained_layers(prepare)
    assert {"encoder.layers.0", "encoder.layers.1", "final_layer_norm.weight"} < set(everything)
    one = trained_layers(prepare, model__last_layers=1)
    assert one == ["encoder.layers.1", "final_layer_norm.bias", "final_layer_norm.weight"]
    assert trained_layers(prepare, model__last_layers=2) == everything, "all layers: everything"
    thawed = trained_layers(prepare, model__last_layers=1, model__freeze=["*final_layer_norm*", "!*token_embedding*"])
    assert thawed == ["embeddings.token_embedding.weight", "encoder.layers.1"]
    assert "model.last_layers selects layers of the text encoder" in refusal("model.last_layers=1")


# breaks if the scale always doubles, or an overflow always halves it
@pytest.mark.effect("run.scaler.growth")
def test_scaler_growth_is_the_factor_both_ways(prepare: Prepare) -> None:
    settings = {"run__precision": "fp16", "run__scaler__init": 512, "run__scaler__growth_interval": 2}
    ready = prepare(run__scaler__growth=1.5, **settings)
    assert [ready.step().report.loss_scale for _ in range(3)] == [512, 512, 768]
    scale = ready.trainer.model.scale
    scale.update(torch.ones(()), 3)
    assert float(scale.scale) == 512


# breaks if stages have no effect, start a step early, or change the factor without the interval
@pytest.mark.effect("run.scaler.stages")
def test_scaler_stages_change_the_pace(prepare: Prepare) -> None:
    settings = {"run__precision": "fp16", "run__scaler__init": 16, "run__scaler__growth_interval": 1}
    ready = prepare(run__scaler__stages=[[2, 3, 2], [6, 4, 1]], **settings)
    assert [ready.step().report.loss_scale for _ in range(8)] == [16, 32, 64, 64, 192, 192, 576, 2304]
    assert "must increase" in refusal("run.scaler.stages=[[5, 2, 1], [5, 3, 1]]")


# breaks if updating the average changes the weights
@pytest.mark.effect("optim.ema.rule")
def test_ema_does_not_change_trained_weights(prepare: Prepare) -> None:
    def after(**settings: Any) -> dict[str, Tensor]:
        ready = prepare(optim__lr=1e-2, **settings)
        return [ready.step() for _ in range(2)][-1].after

    alone = after(optim__ema__rule="none")
    for averaged in (
        {"optim__ema__rule": "constant", "optim__ema__strength": 0.1},
        {
            "optim__ema__rule": "constant",
            "optim__ema__decay": 0.9,
            "optim__ema__device": "cpu",
            "optim__ema__interval": 2,
        },
    ):
        result = after(**averaged)
        assert all(torch.equal(alone[name], tensor) for name, tensor in result.items())


# breaks if weights change after the backward pass, gradients are kept, or incompatible settings are accepted
@pytest.mark.effect("optim.in_backward")
def test_in_backward_updates_weights_during_backward(prepare: Prepare) -> None:
    ready = prepare(**PLAIN, optim__in_backward=True)
    update, trained = ready.trainer.model.update, ready.trainer.model.trained
    (first, _), *_, (last, weight) = trained.items()
    before, seen = update.masters[last].clone(), []
    # the last layer's gradient is first
    trained[first].register_hook(lambda grad: seen.append((weight.grad, bool((update.masters[last] != before).any()))))
    ready.trainer.train_step(ready.next_batches())
    assert seen == [(None, True)]


@pytest.mark.parametrize(
    ("word", "part"),
    [
        ("optim.accumulation=2", "optim.accumulation=2 sums them over batches"),
        ("run.micro_batch=1", "run.micro_batch=1 sums them over passes"),
        ("optim.clip.norm=1", "set optim.clip.norm=null or optim.clip.scope=tensor"),
        ("run.precision=fp16", "the loss scale of run.precision=fp16"),
        ("run.runtime=ddp", "run.runtime=ddp sums them over processes"),
        ("optim.optimizer={kind: prodigy}", "prodigy updates all weights together"),
    ],
)
def test_in_backward_refuses_conflicting_settings(word: str, part: str) -> None:
    words = ("optim.in_backward=true", "optim.clip.norm=null", "data.batch_size=4")
    assert read_text("schema: 1", overrides=[*words, "optim.optimizer={kind: adafactor}"]).recipe.optim.in_backward
    assert part in refusal(*words, word)


def test_in_backward_needs_one_process(prepare: Prepare) -> None:
    job = prepare(**PLAIN, optim__in_backward=True).job
    many = SimpleNamespace(world_size=2)
    with pytest.raises(RecipeError, match="2 processes sum them") as caught:
        assemble.open_model(job.resolved, job.model.files, many)
    assert caught.value.code == "E1830"


# breaks if the warm-up always starts at 0
@pytest.mark.effect("optim.schedule.warmup_from")
def test_warmup_from_is_the_initial_rate(prepare: Prepare) -> None:
    results = [factor(step, warmup_steps=4, warmup_from=0.2) for step in (0, 1, 4, 9)]
    assert results == pytest.approx([0.2, 0.4, 1.0, 1.0])
    ready = prepare(optim__lr=1e-3, optim__schedule__warmup_steps=4, optim__schedule__warmup_from=0.5, **PLAIN)
    assert ready.step().report.rates["denoiser"] == pytest.approx(5e-4)


# breaks if a cycle counts from the start of the run, uses another's numbers, or has another curve
@pytest.mark.effect("optim.schedule.rounds", "optim.schedule.kind")
def test_rounds_follow_each_other(prepare: Prepare) -> None:
    rounds = [{"steps": 4, "warmup_steps": 2, "start": 0.5}, {"steps": 4, "peak": 0.4, "end": 0.2, "curve": "linear"}]
    expected = [0.5, 0.75, 1.0, 0.5, 0.0, 0.35, 0.3, 0.25, 0.2, 0.2]
    results = [factor(step, kind="rounds", rounds=rounds) for step in range(10)]
    assert results == pytest.approx(expected, abs=1e-12)
    ready = prepare(optim__lr=1e-3, optim__schedule={"kind": "rounds", "rounds": rounds}, **PLAIN)
    rates = [ready.trainer.train_step.rates(step)["denoiser"] for step in range(8)]
    assert rates == pytest.approx([1e-3 * one for one in expected[:8]])
    with pytest.raises(RecipeError, match="belong together"):
        factor(0, kind="rounds")
    with pytest.raises(RecipeError, match="the warm-up must be shorter"):
        factor(0, kind="rounds", rounds=[{"steps": 4, "warmup_steps": 4}])
