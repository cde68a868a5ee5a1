"""The cheapest settings with which a run fits, compared with all combinations, and the exact bytes of offloaded
blocks."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import pytest
import torch
from pydantic import ValidationError

from mezzotint.runtimes.base import Launch
from mezzotint.runtimes.single import Runtime
from mezzotint.settings.counting import format_bytes
from mezzotint.settings.reading.read import read_text
from mezzotint.settings.recipe import Recipe
from mezzotint.shapes import Size
from mezzotint.tasks import assemble
from mezzotint.tasks.check import fitting
from mezzotint.tasks.check.fitting import SPARE
from mezzotint.tasks.check.flops import flops_and_recomputed
from mezzotint.tasks.check.memory import Memory, memory_of, with_offload
from mezzotint.tasks.check.meta_model import MetaModel
from mezzotint.tasks.resolving import resolve
from mezzotint.weights.folder.model_folder import shipped_folder

SIZE = Size(64, 64)
SWITCH = (False, True)


def _recipe(*words: str) -> Recipe:
    text = (
        "schema: 1\nmodel: {family: z-image, path: tiny-z-image, weights: random}\n"
        "data: {batch_size: 4, cache: {latents: true, text: true}}\nrun: {precision: bf16, device: cpu}\n"
    )
    return read_text(text, overrides=list(words)).recipe


def located(*words: str) -> Recipe:
    return _recipe(f"model.path={shipped_folder('tiny-z-image')}", *words)


ADAPTER = ("model.adapter.kind=lora", "run.frozen_dtype=same")


def counted(*words: str) -> Memory:
    return memory_of(MetaModel(located(*words)), {SIZE: 4})


@dataclass(frozen=True)
class Tried:
    """A combination of settings, counted by itself."""

    rank: tuple[int, int, int]
    needed: int
    host: int


def try_all(recipe: Recipe, micro_batches: Mapping[int, Any], forms: Sequence[str]) -> list[Tried]:
    """Every valid combination of the searched settings, estimated from its own recipe. micro_batches: by the passes
    that a batch takes. forms: of frozen matrices."""
    batch, trains = recipe.data.batch_size, not recipe.model.has_adapter
    flops = {again: sum(flops_and_recomputed(recomputing(recipe, again), SIZE)) for again in SWITCH}
    weights = sum(p.numel() for p in MetaModel(recipe).trained.values()) * 4
    optimizers = [{}, {"optim.optimizer": {"kind": "adafactor"}}] if recipe.optim.optimizer.kind == "adamw" else [{}]
    averages = ("same", "cpu") if recipe.optim.ema.rule != "none" else ("same",)
    tried = []
    for passes, again, average, in_backward, optimizer, form in product(
        micro_batches, SWITCH, averages, SWITCH, optimizers, forms
    ):
        settings = optimizer | {
            "run.micro_batch": micro_batches[passes], "optim.ema.device": average,
            "optim.in_backward": in_backward, "run.frozen_dtype": form,
        } | ({"optim.clip.scope": "tensor"} if in_backward else {})  # fmt: skip
        try:
            outline = MetaModel(fitting.with_settings(recomputing(recipe, again), settings))
        except ValidationError:
            continue
        whole = memory_of(outline, {SIZE: batch})
        numbers = in_backward + 4 * (form == "int8") + 8 * (form == "nf4") + 16 * bool(optimizer)
        for at_once in (None, *range(1, len(whole.blocks) + trains)):
            outline.blocks = at_once
            memory = with_offload(outline, whole)
            host, moved = memory.on_host, 0
            if average == "cpu" and not memory.update_is_apart:  # this estimate is for a CPU, where it stays
                memory, host, moved = replace(memory, ema_is_apart=True), host + memory.ema, memory.ema
            if at_once is not None:
                loaded = sum(blocks_of(memory, at_once)) + (sum(memory.blocks[:at_once]) if trains else 0)
                moved += passes * (loaded + (2 * weights - sum(memory.blocks) if trains else 0))
            tried.append(Tried((numbers, batch * flops[again] + 5200 * moved, passes), memory.step, host))
    return tried


def blocks_of(memory: Memory, at_once: int) -> Iterator[int]:
    """Bytes of the blocks that a forward pass and a backward pass load, if the first and the last stay loaded."""
    count = len(memory.blocks)
    yield from memory.blocks[at_once:]
    yield from memory.blocks[: count - at_once]


def recomputing(recipe: Recipe, enabled: bool) -> Recipe:
    return fitting.with_settings(recipe, {"run.gradient_checkpointing.enabled": enabled})


@pytest.mark.parametrize(
    ("words", "micro_batches", "forms"),
    [
        pytest.param(
            ("data.batch_size=2", "optim.optimizer={kind: lion}"), {1: None, 2: 1}, ("same",), id="whole"
        ),
        pytest.param(
            ("optim.ema.rule=ramp",), {1: None, 2: 2, 4: 1}, ("same",), id="whole, average", marks=pytest.mark.slow
        ),
        pytest.param(
            (*ADAPTER, "optim.optimizer={kind: lion}"), {1: None, 2: 2, 4: 1}, ("same", "int8", "nf4"), id="adapter",
            marks=pytest.mark.slow,
        ),
    ],
)  # fmt: skip
def test_no_combination_of_settings_is_better_than_the_plan(
    words: tuple[str, ...], micro_batches: dict[int, Any], forms: tuple[str, ...]
) -> None:
    if len(forms) > 1:
        pytest.importorskip("peft")
        pytest.importorskip("torchao")
    recipe = located(*words)
    search = fitting.Search(recipe, {SIZE: recipe.data.batch_size}, "cpu")
    tried = try_all(recipe, micro_batches, forms)
    needs = sorted({combination.needed for combination in tried})
    hosts = sorted({combination.host for combination in tried})
    rooms = [needs[0] - 1, *needs[:: max(1, len(needs) // 6)], needs[-1]]
    chosen = set()
    for needed, host in product(rooms, (None, 0, hosts[len(hosts) // 2])):
        room = math.ceil(fitting.SPARE * needed)
        fitting_ones = [
            combination for combination in tried
            if fitting.SPARE * combination.needed <= room and (host is None or combination.host <= host)
        ]  # fmt: skip
        plan = search.find(room, host)
        assert (plan is None) == (not fitting_ones), (needed, host)
        if plan is not None:
            best = min(fitting_ones, key=lambda combination: combination.rank)
            assert plan.rank[:3] == best.rank, (needed, host, plan)
            assert Tried(plan.rank[:3], plan.needed, plan.memory.held_on_host) in tried, "it is counted as by itself"
            chosen.add(str(plan.settings))
    assert len(chosen) > 4, "small and large cards get different plans"
    size, smallest = search.smallest(host=0) or (0, None)
    without = min(combination.needed for combination in tried if not combination.host)
    assert smallest is not None
    assert SPARE * without <= size <= 1.1 * SPARE * without
    assert SPARE * smallest.needed <= size


def test_plan_is_explained_step_by_step() -> None:
    recipe = located("run.micro_batch=4")
    search = fitting.Search(recipe, {SIZE: 4}, "cpu")
    plain = search.as_it_is()
    assert not plain.settings
    roomy = search.find(10 * plain.needed)
    assert roomy is not None
    assert (roomy.settings, search.explain(roomy)) == ({}, [])
    away = counted("run.micro_batch=1", "run.gradient_checkpointing.enabled=true", "run.offload.blocks=1")
    tight = search.find(math.ceil(SPARE * away.step))
    assert tight is not None
    reasons = search.explain(tight)
    assert [dict(reason.settings) for reason in reasons] == [
        {"run.micro_batch": 1}, {"run.gradient_checkpointing.enabled": True}, {"run.offload.blocks": 1}
    ]  # fmt: skip
    fewer, again, offloaded = (reason.text for reason in reasons)
    one = counted("run.micro_batch=1")
    assert fewer == (
        f"activations {format_bytes(plain.memory.worst)} → {format_bytes(one.worst)}; the batch in 4 passes instead of "
        "1, with the same mean; the cost of a step stays the same"
    )
    assert again.startswith(f"activations {format_bytes(one.worst)} → {format_bytes(away.worst)}; blocks are computed ")
    assert again.endswith(f"; a step costs +{round(100 * (tight.flops / plain.flops - 1))} % FLOPs")
    assert f"gradients, moments in {format_bytes(away.on_host)} of host memory, " in offloaded
    assert offloaded.endswith(f"; a step costs {format_bytes(tight.moved)} more between host and card")


def test_ways_on_a_cpu_offload_nothing() -> None:
    again = counted("run.micro_batch=1", "run.gradient_checkpointing.enabled=true")
    search = fitting.Search(located(), {SIZE: 4}, "cpu", of_card=False)
    [way] = fitting.ways_to_fit(search, math.ceil(SPARE * again.peak))
    assert dict(way.settings) == {"run.micro_batch": 1, "run.gradient_checkpointing.enabled": True}
    assert str(way).startswith("run.micro_batch=1 run.gradient_checkpointing.enabled=true (")
    on_card = fitting.Search(located(), {SIZE: 4}, "cpu")
    streamed, without = fitting.ways_to_fit(on_card, math.ceil(0.9 * again.step))
    assert streamed.memory.held_on_host > 0 == without.memory.held_on_host
    assert without.numbers > 0 == streamed.numbers, "it changes results instead"
    assert fitting.ways_to_fit(search, 1) == []


@pytest.mark.slow
@pytest.mark.parametrize("words", [(), ADAPTER], ids=["whole", "adapter"])
def test_estimated_block_bytes_match_offloaded_blocks(words: tuple[str, ...]) -> None:
    if words:
        pytest.importorskip("peft")
    real = located(*words, "run.offload.blocks=1")
    memory = memory_of(MetaModel(real), {SIZE: 4})
    runtime = Runtime(torch.device("cpu"), Launch(), real.run)
    model = assemble.open_model(resolve(real, 4), assemble.open_files(real), runtime)
    stay = {id(p) for p in model.trained.values()} if words else set()  # trained adapters stay on the device
    blocks = [[p for module in block for p in module.parameters()] for block in model.family.blocks()]
    assert memory.blocks == tuple(sum(p.nbytes for p in block if id(p) not in stay) for block in blocks)
    whole = memory_of(MetaModel(located(*words)), {SIZE: 4})
    assert memory.weights == whole.weights - sum(memory.blocks) + max(memory.blocks)


@pytest.mark.slow
def test_auto_keeps_as_many_blocks_as_fit() -> None:
    pytest.importorskip("peft")
    auto = located(*ADAPTER, "run.offload.blocks=auto")

    def settled(free: int | None) -> tuple[Any, str]:
        return fitting.choose_blocks(MetaModel(auto), {SIZE: 4}, processes=1, free=free)

    whole, two = counted(*ADAPTER), counted(*ADAPTER, "run.offload.blocks=2")
    assert len(two.blocks) > 3
    assert settled(int(1.06 * whole.peak)) == (None, "run.offload.blocks is auto: all blocks fit on the device")
    assert settled(None)[0] == settled(1)[0] == 2
    count, said = settled(int(fitting.SPARE * (two.step + 1.5 * max(two.blocks))))
    assert (count, said) == (3, f"run.offload.blocks is auto: 3 of {len(two.blocks)} blocks are on the device at once")


def test_plans_count_gradient_sums_of_given_dtype() -> None:
    words = ("run.precision=bf16", "run.weight_dtype=same")
    plain, kept = (
        fitting.Search(located(*words), {SIZE: 4}, "cpu", sums=sums).as_it_is().memory for sums in ("same", "fp32")
    )
    assert kept.gradients == 2 * plain.gradients


def test_settings_that_cannot_be_tried_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "bitsandbytes", None)
    search = fitting.Search(located(), {SIZE: 4}, "cpu")
    assert search.find(1) is None
    [(settings, why)] = search.left_out.items()
    assert settings == "optim.optimizer.kind=adamw-8bit"
    assert "bitsandbytes" in why
