"""Rows of `run.drift`: how far the trained model is from its base, on prompts and on held-out images."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from mezzotint.sampling.network import build_network
from mezzotint.sampling.requests import Sampling
from mezzotint.settings.sections.sample import SampleSettings
from mezzotint.training.callbacks.drift import HELD_OUT, Drift
from support.contradictions import contradiction

Prepare = Callable[..., Any]
LORA = {"model__adapter__kind": "lora", "model__adapter__rank": 4, "model__adapter__targets": "[attention]"}
CAPTIONS = {"data__captions__trigger": "sks dog", "data__captions__dropout": 0, "optim__lr": 0.05}
DRIFT = {
    "run__drift__every": 2, "run__drift__prompts": 2, "run__drift__timesteps": 2, "optim__ema__rule": "none",
    "run__drift__unrelated": ["a boat", "a tree", "rain"],
}  # fmt: skip
WORDS = LORA | CAPTIONS | DRIFT


def meter_of(ready: Any) -> Drift:
    [meter] = (callback for callback in ready.trainer.callbacks if isinstance(callback, Drift))
    return meter


def measured(run: Path) -> dict[int, dict[str, float]]:
    """The numbers of metrics.jsonl by step."""
    lines = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    return {line.pop("step"): line for line in lines if any(key.startswith("drift/") for key in line)}


def outputs(ready: Any, group: str, x_t: list[Tensor]) -> list[Tensor]:
    """What the networks of another run predict for a group's prompts at these noisy latents, at 999 and 499."""
    requests = [prompt.request for prompt in meter_of(ready).prompts[group]]
    model = ready.trainer.model
    sampling = Sampling(model.objective.schedule, model.objective.parameterization, "cpu", SampleSettings())
    with torch.no_grad():
        network = build_network(model.family, requests, sampling, "timestep")
        return [network(x, torch.tensor(t)) for x, t in zip(x_t, (999, 499), strict=True)]


# breaks if the base is not the untrained model, a group has other prompts, or the number another norm
@pytest.mark.effect("run.drift.every", "run.drift.timesteps", "run.drift.prompts", "run.drift.unrelated")
@pytest.mark.parametrize("cached", [True, False], ids=["cached text", "trained text encoder"])
def test_drift_is_the_relative_distance_to_the_untrained_model(prepare: Prepare, cached: bool) -> None:
    parts = {} if cached else {"data__cache__text": False, "model__train": "[denoiser, text_encoder]"}
    ready, base = prepare(**WORDS, **parts), prepare(**WORDS, **parts)
    meter = meter_of(ready)
    first = meter.measure()
    assert set(first.values()) == {0.0}, "an adapter starts as the base"
    ready.step()
    ready.step()
    numbers = meter.measure()
    texts = {group: [prompt.request.prompt for prompt in prompts] for group, prompts in meter.prompts.items()}
    assert [text.replace("sks dog", "dog") for text in texts["trigger"]] == texts["class"]
    assert len(set(texts["trigger"])) == 2
    assert all(text.startswith("sks dog ") for text in texts["trigger"])
    assert texts["unrelated"] == ["a boat", "a tree", "rain"]
    for group in texts:
        x_t = [point.x_t for points in meter._of_base[group] for point in points]
        own, other = outputs(ready, group, x_t), outputs(base, group, x_t)
        apart = [float((a - b).square().sum() / b.square().sum()) for a, b in zip(own, other, strict=True)]
        assert [numbers[f"drift/{group}_at/{t}"] for t in (999, 499)] == pytest.approx(apart, rel=1e-4)
        assert numbers[f"drift/{group}"] == pytest.approx(sum(apart) / 2, rel=1e-4)
        assert min(apart) > 1e-6
    assert numbers["drift/leak"] == numbers["drift/class"] / numbers["drift/trigger"]


# breaks if the meter measures without guidance, or away from another negative prompt
@pytest.mark.effect("sample.guidance", "sample.negative_prompt")
def test_prompts_are_measured_with_the_guidance_of_samples(prepare: Prepare) -> None:
    def point(**sample: Any) -> Any:
        meter = meter_of(prepare(**WORDS | sample))
        meter.measure()
        return meter._of_base["unrelated"][0][0]

    alone, guided = point(sample__guidance=1), point(sample__guidance=3, sample__negative_prompt="blurry")
    away = point(sample__guidance=1, run__drift__unrelated=["blurry", "blurry", "blurry"])
    assert torch.equal(guided.x_t, alone.x_t)
    wanted = away.predicted + 3 * (alone.predicted - away.predicted)
    torch.testing.assert_close(guided.predicted, wanted, rtol=1e-3, atol=1e-4)
    assert not torch.allclose(guided.predicted, alone.predicted, rtol=1e-2, atol=1e-3)


def test_base_is_measured_at_the_noisy_latents_of_its_own_sampling(prepare: Prepare) -> None:
    meter = meter_of(prepare(**WORDS))
    meter.measure()
    [[first, second]] = meter._of_base["class"]
    assert [int(first.t), int(second.t)] == [999, 499]
    assert float(first.x_t.std()) == pytest.approx(1, abs=0.1), "noise"
    alpha_bar = meter.model.objective.schedule.alpha_bar
    a, b = (float(alpha_bar[t]) for t in (999, 499))
    eps = first.predicted
    x_0 = (first.x_t - (1 - a) ** 0.5 * eps) / a**0.5
    torch.testing.assert_close(second.x_t, b**0.5 * x_0 + (1 - b) ** 0.5 * eps, rtol=1e-3, atol=1e-3)


# breaks if a single caption is measured with one noise only
@pytest.mark.effect("run.drift.prompts")
def test_fewer_captions_are_repeated_with_other_noise(prepare: Prepare) -> None:
    settings = {"data__captions__template": "a photo of {trigger}", "run__drift__prompts": 3}
    meter = meter_of(prepare(**WORDS | settings))
    meter.measure()
    requests = [prompt.request for prompt in meter.prompts["class"]]
    assert [request.prompt for request in requests] == ["a photo of dog"] * 3
    [[first, _]] = meter._of_base["class"]
    assert first.x_t.flatten(1).unique(dim=0).shape[0] == 3


# breaks if held-out images are not measured, or more of them than prompts
@pytest.mark.effect("run.drift.prompts")
def test_held_out_captions_are_measured_on_their_own_images(prepare: Prepare) -> None:
    validation = {"run__validation__every": 2, "data__holdout__fraction": 0.5}
    meter = meter_of(prepare(**WORDS, **validation))
    assert sum(batch.size for batch in meter._batches) == 2
    assert meter.measure()[f"drift/{HELD_OUT}"] == 0.0
    for batch, points in zip(meter._batches, meter._of_base[HELD_OUT], strict=True):
        assert [int(point.t) for point in points] == [250, 750]
        assert points[0].predicted.shape == batch.latents.shape


# breaks if measuring changes training, a curve misses a step, or a resumed run measures something else
@pytest.mark.effect("run.drift.every")
def test_measuring_changes_nothing_and_resumes_with_equal_numbers(shared_world: Any) -> None:
    own = {"run__validation__every": 2, "data__holdout__fraction": 0.3, "data__cache__latents": True}
    short = WORDS | own | {"run__steps": 4, "data__cache__text": True, "optim__ema__rule": "constant"}
    for name, settings in (
        ("drift", {"run__save__every": 2}),
        ("plain", {"run__drift__every": "null", "run__drift__unrelated": "[]"}),
    ):
        assert shared_world.train(name, **short | settings) == 0
    assert shared_world.end("drift") == shared_world.end("plain")
    folder = shared_world.root / "drift"
    numbers = measured(folder)
    assert list(numbers) == [0, 2, 4]
    assert {"drift/held_out", "drift/leak", "drift/leak_shadow", "drift/class_at/999"} <= numbers[4].keys()
    middle = folder / "checkpoints" / "step-00000002"
    assert shared_world.train("drift-rest", **short | {"run__resume": middle}) == 0
    assert measured(shared_world.root / "drift-rest")[4] == numbers[4]
    report = (folder / "logs" / "report.txt").read_text()
    assert f"drift         trigger {numbers[4]['drift/trigger']:.4f}, class" in report
    assert f"step-00000004 (leak {numbers[4]['drift/leak']:.2f})" in report


# breaks if the warning comes for a small leak, repeats, or has no remedy
@pytest.mark.effect("run.drift.warn")
def test_warning_of_a_leak_is_printed_once_until_it_has_been_lower(prepare: Prepare) -> None:
    meter, sentences = meter_of(prepare(**WORDS, run__drift__warn=0.4)), list[str]()
    meter.warn = sentences.append
    for leak in (0.3, 0.5, 0.6, 0.2, 0.4):
        meter._warn_of_leak({"drift/leak": leak, "drift/class": 0.1})
    assert len(sentences) == 2
    assert "times as much as 'sks dog" in sentences[0]
    assert "0.50 times" in sentences[0]
    remedy = "train fewer steps, or use a lower model.adapter.rank or optim.lr"
    assert sentences[0].endswith(f"set objective.preserve.kind=[output,prompts], {remedy}")
    preserved = meter_of(prepare(**WORDS, objective__preserve__kind="blank"))
    assert preserved.remedy == f"raise objective.preserve.weight, {remedy}"
    resumed = meter_of(prepare(**WORDS, run__drift__warn=0.4))
    resumed.warn = sentences.append
    resumed.load(meter.state())
    resumed._warn_of_leak({"drift/leak": 0.9, "drift/class": 0.1})
    silent = meter_of(prepare(**WORDS, run__drift__warn="null"))
    silent.warn = sentences.append
    silent._warn_of_leak({"drift/leak": 0.9, "drift/class": 0.1})
    assert len(sentences) == 2


def test_frozen_copy_is_the_base_of_full_training(prepare: Prepare) -> None:
    ready = prepare(**CAPTIONS | DRIFT | {"optim__lr": 1e-3}, objective__preserve__frozen_copy=True)
    meter = meter_of(ready)
    assert meter.measure()["drift/class"] == pytest.approx(0, abs=1e-12)
    ready.step()
    assert meter.measure()["drift/class"] > 1e-6


def test_learned_token_is_compared_with_what_the_base_makes_of_its_class(prepare: Prepare) -> None:
    words = {
        "model__train": "[tokens]", "model__tokens__words": {"<toy>": "red"}, "data__captions__prefix": "<toy>",
        "data__cache__text": False, "data__captions__class_word": "toy", "optim__lr": 0.05,
    }  # fmt: skip
    ready = prepare(**DRIFT | words)
    meter = meter_of(ready)
    first = meter.measure()
    prompt = meter.prompts["trigger"][0]
    assert prompt.of_base.prompt == prompt.request.prompt.replace("<toy>", "toy")
    assert first["drift/trigger"] > 0
    assert first["drift/class"] == first["drift/unrelated"] == 0
    ready.step()
    later = meter.measure()
    assert later["drift/trigger"] != first["drift/trigger"]
    assert later["drift/class"] == 0, "only prompts with the token can change"


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (["run.drift.every=10 steps"], "run.drift.every needs the model as it was before training"),
        (["objective.preserve.frozen_copy=true"], "and nothing uses it; write"),
        (
            ["run.drift.every=10 steps", "model.adapter.kind=lora", "model.adapter.init=pissa"],
            "has changed the weights under it",
        ),
        (
            ["run.drift.every=10 steps", "model.adapter.kind=lora", "data.conditions.source.folder=x"],
            "measures prompts without images",
        ),
    ],
)
def test_drift_that_cannot_be_measured_is_refused(settings: list[str], sentence: str) -> None:
    assert sentence in contradiction(*settings)
