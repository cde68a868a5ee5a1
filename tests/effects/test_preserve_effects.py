"""Rows of `objective.preserve`: training held to the prediction of the model without what is trained."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from mezzotint.diffusion.objective import StepDraws
from mezzotint.families.base import batch_latents
from mezzotint.settings.reading.read import read_text, resolve_paths
from mezzotint.shapes import Size
from mezzotint.stages import Batch
from mezzotint.tasks.check.memory import memory_of
from mezzotint.tasks.check.meta_model import MetaModel
from support.contradictions import contradiction

Prepare = Callable[..., Any]
CPU = torch.device("cpu")
LORA = {"model__adapter__kind": "lora", "model__adapter__rank": 4, "model__adapter__targets": "[attention]"}
CAPTIONS = {"data__captions__trigger": "sks dog", "data__captions__dropout": 0, "optim__lr": 0.05}
OUTPUT = LORA | CAPTIONS | {"objective__preserve__kind": "output"}


def prediction(ready: Any, batch: Batch, step: int, captions: tuple[str, ...]) -> Tensor:
    """What a model predicts for a batch's noisy latents with other captions."""
    drawn = StepDraws.at(ready.trainer.train_step.seed, step, batch.positions.numpy(), CPU)
    with torch.no_grad():
        noised = ready.objective.noise(batch_latents(ready.family, batch, CPU), drawn)
        text = ready.family.encode_text(captions)
        predicted: Tensor = ready.family.predict(noised, ready.family.condition(text, batch))
    return predicted


def base_of(prepare: Prepare, **settings: Any) -> Any:
    """The untrained model of the same files and seed, opened for itself, with a text encoder."""
    return prepare(**CAPTIONS | {"data__cache__text": False} | settings)


def distances(prepare: Prepare, ready: Any, step: Any, captions: Callable[[str], str], **settings: Any) -> list[Tensor]:
    """Of each batch's samples: trained model and base apart, computed with two separately opened models."""
    trained = base_of(prepare, **LORA, **settings)
    masters = trained.trainer.model.update.masters
    with torch.no_grad():
        for name, weight in step.before.items():
            masters[name].copy_(weight)
    base, apart = base_of(prepare, **settings), []
    for batch in step.batches.batches:
        texts = tuple(map(captions, batch.captions))
        both = [prediction(model, batch, step.report.step, texts) for model in (trained, base)]
        apart.append((both[0] - both[1]).square().mean(dim=(1, 2, 3)))
    return apart


# breaks if the base is not the untrained model, other captions are preserved, or the weight is not a factor
@pytest.mark.effect("objective.preserve.kind", "objective.preserve.weight", "data.captions.class_word")
@pytest.mark.parametrize("cached", [True, False], ids=["cached text", "text encoder"])
def test_output_preservation_adds_the_distance_to_the_base(prepare: Prepare, cached: bool) -> None:
    words = OUTPUT | {
        "data__captions__class_word": "hound",
        "objective__preserve__weight": 3,
        "data__cache__text": cached,
    }
    ready = prepare(**words)
    assert ready.step().report.group_losses["preserve"] == 0, "at first it is the base"
    step = ready.step()
    [apart] = distances(prepare, ready, step, lambda caption: caption.replace("sks dog", "hound"))
    assert float(apart.min()) > 1e-6
    assert step.report.group_losses["preserve"] == pytest.approx(3 * float(apart.mean()), rel=1e-4)
    alone = float(torch.tensor(step.report.losses).mean())
    assert step.report.loss == pytest.approx(alone + 3 * float(apart.mean()), rel=1e-4)


def test_blank_preservation_uses_the_empty_caption(prepare: Prepare) -> None:
    ready = prepare(**LORA | CAPTIONS, objective__preserve__kind="blank")
    ready.step()
    step = ready.step()
    [apart] = distances(prepare, ready, step, lambda caption: "")
    assert step.report.group_losses["preserve"] == pytest.approx(float(apart.mean()), rel=1e-4)


# breaks if other prompts are preserved, always the same, zeros of a dropped caption instead, or kinds take no turns
@pytest.mark.effect("objective.preserve.prompts")
@pytest.mark.parametrize("cached", [True, False], ids=["cached text", "text encoder"])
@pytest.mark.parametrize("kinds", [("prompts",), ("output", "prompts")], ids=["prompts", "both"])
def test_prompts_are_preserved_and_kinds_take_turns(prepare: Prepare, cached: bool, kinds: tuple[str, ...]) -> None:
    prompts = {"a boat", "a tree", "rain"}
    settings = {"objective__preserve__kind": list(kinds), "objective__preserve__prompts": sorted(prompts)}
    dropping = {"data__captions__dropout": 0.5, "data__captions__dropped": "zeros", "data__cache__text": cached}
    ready = prepare(**LORA | CAPTIONS | settings | dropping)
    drawn = set()
    for _ in range(6):
        step = ready.step()
        [batch] = step.batches.batches
        for caption, preserved in zip(batch.captions, batch.preserved_captions, strict=True):
            drawn.add(preserved)
            assert preserved in (prompts if kinds == ("prompts",) else {*prompts, caption.replace("sks dog", "dog")})
    assert drawn > prompts if "output" in kinds else drawn == prompts
    texts = iter(batch.preserved_captions)
    [apart] = distances(prepare, ready, step, lambda caption: next(texts))
    counted = [own != other for own, other in zip(batch.captions, batch.preserved_captions, strict=True)]
    mean = float(apart[counted].sum()) / batch.size
    assert step.report.group_losses["preserve"] == pytest.approx(mean, rel=1e-4)


def test_preserved_captions_do_not_depend_on_micro_batches(prepare: Prepare) -> None:
    drawn = []
    for size in ("null", 1):
        words = OUTPUT | {"objective__preserve__kind": ["output", "blank", "prompts"], "run__micro_batch": size}
        batches = prepare(**words, data__batch_size=4).step().batches.batches
        drawn.append([text for batch in batches for text in batch.preserved_captions])
    assert drawn[0] == drawn[1]
    assert len(drawn[0]) > 1


def test_preservation_pulls_the_model_to_the_base(prepare: Prepare) -> None:
    apart = {}
    for weight in (1e-6, 100.0):
        ready = prepare(**OUTPUT | {"optim__lr": 3e-3, "objective__preserve__weight": weight})
        apart[weight] = sum(ready.step().report.group_losses["preserve"] / weight for _ in range(6))
    assert 0 < apart[100.0] < 0.7 * apart[1e-6]


def test_captions_without_trigger_are_left_out(prepare: Prepare) -> None:
    ready = prepare(**OUTPUT | {"data__captions__dropout": 0.5, "data__captions__dropped": "empty"})
    ready.step()
    step = ready.step()
    [batch] = step.batches.batches
    assert {bool(caption) for caption in batch.captions} == {True, False}
    [apart] = distances(prepare, ready, step, lambda caption: caption.replace("sks dog", "dog"))
    counted = sum(float(one) for one, caption in zip(apart, batch.captions, strict=True) if caption)
    assert step.report.group_losses["preserve"] == pytest.approx(counted / batch.size, rel=1e-4)


def test_class_images_get_the_prediction_of_the_base_as_target(prepare: Prepare, noisy: Any, tmp_path: Any) -> None:
    own, other = noisy(tmp_path / "own", [(48, 48)] * 4), noisy(tmp_path / "class", [(48, 48)] * 4)
    data = {
        "data__path": own, "data__prior__path": other, "data__prior__balance": "pairs", "data__crop": "center",
        "data__buckets__shape": "square", "data__prior__weight": 0.5,
    }  # fmt: skip
    ready = prepare(**LORA | CAPTIONS | data, objective__preserve__kind="class-images")
    assert ready.step().report.group_losses["class"] == 0, "at first it is the base"
    step = ready.step()
    [apart] = distances(prepare, ready, step, lambda caption: caption, **data)
    [batch] = step.batches.batches
    assert step.report.group_losses["class"] == pytest.approx(float(apart[batch.is_class].mean()), rel=1e-4)
    losses = torch.tensor(step.report.losses)
    torch.testing.assert_close(losses[batch.is_class], apart[batch.is_class], rtol=1e-4, atol=0)
    assert float(losses[~batch.is_class].min()) > 0.1


@pytest.mark.parametrize("kind", ["lora", "rslora", "dora", "loha", "lokr", "oft"])
def test_switched_off_adapter_gives_the_base_bit_for_bit(prepare: Prepare, kind: str) -> None:
    words = OUTPUT | {
        "model__adapter__kind": kind,
        "model__train": "[denoiser, text_encoder]",
        "data__cache__text": False,
    }
    if kind == "oft":
        del words["model__adapter__rank"]
    words |= {"model__adapter__dropout": 0.3} if kind in ("lora", "rslora", "dora") else {}
    ready, base = prepare(**words), base_of(prepare)
    step = ready.step()
    assert step.largest("text_encoder") > 0
    [batch] = step.batches.batches
    preservation = ready.trainer.model.preservation
    with preservation.base.in_use():
        off = prediction(ready, batch, 0, batch.captions)
    assert torch.equal(off, prediction(base, batch, 0, batch.captions))
    assert not torch.equal(off, prediction(ready, batch, 0, batch.captions)), "and it is on again"
    assert all(parameter.requires_grad for parameter in ready.trainer.model.trained.values())
    assert ready.step().report.group_losses["preserve"] > 0


# breaks if the copy is trained, or follows the trained weights
@pytest.mark.effect("objective.preserve.frozen_copy")
def test_frozen_copy_is_the_base_of_full_training(prepare: Prepare) -> None:
    words = CAPTIONS | {
        "objective__preserve__kind": "output",
        "objective__preserve__frozen_copy": True,
        "optim__lr": 1e-3,
    }
    both = {"model__train": "[denoiser, text_encoder]", "data__cache__text": False}
    ready = prepare(**words, **both)
    assert ready.step().report.group_losses["preserve"] == pytest.approx(0, abs=1e-12)
    step = ready.step()
    [batch] = step.batches.batches
    texts = tuple(caption.replace("sks dog", "dog") for caption in batch.captions)
    base = base_of(prepare)
    with ready.trainer.model.preservation.base.in_use() as family:
        text = family.encode_text(texts)
        drawn = StepDraws.at(0, 1, batch.positions.numpy(), CPU)
        noised = ready.objective.noise(batch_latents(ready.family, batch, CPU), drawn)
        assert torch.equal(family.predict(noised, family.condition(text, batch)), prediction(base, batch, 1, texts))
    assert step.report.group_losses["preserve"] > 1e-6


def test_memory_counts_the_further_pass_and_the_copy() -> None:
    def measure(text: str) -> tuple[int, int]:
        reading = read_text(f"schema: 1\nmodel: {{path: tiny-sd, weights: random}}\n{text}")
        recipe = resolve_paths(reading)
        memory = memory_of(MetaModel(recipe), {Size(64, 64): 2})
        return memory.worst, memory.weights

    plain = measure("")
    preserved = measure("objective: {preserve: {kind: blank, frozen_copy: true}}")
    assert preserved[0] > 1.8 * plain[0]
    assert preserved[1] > 1.5 * plain[1]


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (["objective.preserve.kind=output"], "train an adapter, which can be switched off, or write"),
        (["objective.preserve.kind=output", "model.adapter.kind=lora"], "and data.captions.trigger is empty"),
        (
            ["objective.preserve.kind=output", "model.adapter.kind=lora", "data.captions.trigger=ohwx"],
            "what it is one of, and that is missing; write data.captions.class_word=dog",
        ),
        (["objective.preserve.kind=class-images", "model.adapter.kind=lora"], "needs class images"),
        (
            ["objective.preserve.kind=blank", "model.adapter.kind=lora", "model.adapter.init=pissa"],
            "has changed the weights under it",
        ),
        (
            ["objective.preserve.kind=blank", "objective.preserve.frozen_copy=true", "run.runtime=fsdp"],
            "is not shared or offloaded by run.runtime=fsdp",
        ),
        (["objective.preserve.weight=2"], "objective.preserve.kind is none"),
        (
            ["objective.preserve.kind=[output,class-images]"],
            "kind=class-images stands alone; output, blank and prompts",
        ),
        (["objective.preserve.prompts=[a boat]"], "write objective.preserve.kind=[output,prompts]"),
    ],
)
def test_preservation_that_cannot_work_is_refused(settings: list[str], sentence: str) -> None:
    assert sentence in contradiction(*settings)
