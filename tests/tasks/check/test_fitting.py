"""Settings that make a run fit, those that change the least first, and the exact bytes of offloaded blocks."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from mezzotint.runtimes.base import Launch
from mezzotint.runtimes.single import Runtime
from mezzotint.settings.counting import format_bytes
from mezzotint.settings.reading.read import read_text
from mezzotint.settings.recipe import Recipe
from mezzotint.shapes import Size
from mezzotint.tasks import assemble
from mezzotint.tasks.check import fitting
from mezzotint.tasks.check.memory import Memory, MetaModel, memory_of
from mezzotint.tasks.resolving import resolve
from mezzotint.weights.folder.model_folder import shipped_folder

SIZE = Size(64, 64)


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


@pytest.fixture
def counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Estimates of equal settings are computed once in a test, which looks for ways several times."""
    counter, results = fitting._MemoryCounter, dict[str, Any]()
    count = counter._count

    def count_once(self: Any, settings: Any) -> Any:
        if str(settings) not in results:
            results[str(settings)] = count(self, settings)
        return results[str(settings)]

    monkeypatch.setattr(counter, "_count", count_once)


@pytest.mark.slow
@pytest.mark.usefixtures("counted_once")
def test_ways_fit_and_are_ordered_by_what_they_change() -> None:
    pytest.importorskip("peft")
    pytest.importorskip("torchao")
    plain = counted(*ADAPTER)

    def ways(room: float, **more: Any) -> list[fitting.FittingSettings]:
        return fitting.ways_to_fit(located(*ADAPTER), {SIZE: 4}, int(room), device="cpu", **more)

    assert [way.settings for way in ways(1.06 * plain.peak)] == [{}]
    small = {"run.micro_batch": 1, "run.gradient_checkpointing.enabled": True}
    again = counted(*ADAPTER, "run.micro_batch=1", "run.gradient_checkpointing.enabled=true")
    assert again.step < plain.step
    first, *_ = ways(1.06 * again.peak)
    assert first.settings == small
    assert str(first).startswith("run.micro_batch=1 run.gradient_checkpointing.enabled=true (")
    away = counted(*ADAPTER, "run.micro_batch=1", "run.gradient_checkpointing.enabled=true", "run.offload.blocks=auto")
    room = fitting.SPARE * away.step + 1  # its blocks are small
    on_card = ways(room, of_card=True, most=3)
    assert on_card[0].settings == small | {"run.offload.blocks": "auto"}
    assert on_card[0].memory.step == away.step
    assert on_card[0].memory.on_host == away.on_host == sum(away.blocks)
    assert all(fitting.SPARE * way.memory.step <= room for way in on_card)
    assert all("run.offload.blocks" not in way.settings for way in ways(1.06 * again.peak, most=9)), "shared memory"
    assert ways(1) == []


@pytest.mark.slow
def test_full_fine_tuning_fits_by_offload_and_update_in_backward() -> None:
    away = counted("run.micro_batch=1", "run.gradient_checkpointing.enabled=true", "run.offload.blocks=2")
    [first, *others] = fitting.ways_to_fit(
        located(), {SIZE: 4}, int(1.06 * away.step), device="cpu", of_card=True, most=9
    )
    assert first.settings["run.offload.blocks"] == "auto"
    assert first.memory.update_is_apart
    assert {"data.batch_size": 1, "optim.in_backward": True}.items() <= others[-1].settings.items()
    numbers = sum(part.trained for part in away.parts)
    assert away.on_host == 4 * (1 + 1 + 2) * numbers, "master weights, gradients, two moments"


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


def test_ways_count_gradient_sums_of_given_dtype() -> None:
    words = ("run.precision=bf16", "run.weight_dtype=same")
    plain, kept = (
        fitting.ways_to_fit(located(*words), {SIZE: 4}, 1 << 40, device="cpu", sums=sums)[0].memory
        for sums in ("same", "fp32")
    )
    assert kept.gradients == 2 * plain.gradients


def test_ways_name_their_settings_and_the_memory_of_both_sides() -> None:
    memory: Any = SimpleNamespace(step=3 * 2**30, on_host=0)
    assert str(fitting.FittingSettings({}, memory)) == f"as it is ({format_bytes(3 * 2**30)})"
    memory.on_host = 2**30
    text = str(fitting.FittingSettings({"run.micro_batch": 1}, memory))
    assert text == f"run.micro_batch=1 ({format_bytes(3 * 2**30)}, and {format_bytes(2**30)} of host memory)"
