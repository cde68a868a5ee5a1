"""Estimates: batches, cache entries, checkpoints, exports and disk space."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from mezzotint import durable
from mezzotint.errors import StorageError
from mezzotint.settings.base import Every
from mezzotint.settings.counting import format_bytes
from mezzotint.settings.recipe import Recipe
from mezzotint.tasks import assemble
from mezzotint.tasks.cache import cache
from mezzotint.tasks.check import check, page
from mezzotint.tasks.check.estimates import Length, refuse_full_disk, times_due
from mezzotint.tasks.resolving import resolve
from mezzotint.tasks.train import exports
from mezzotint.training.checkpoints import state
from support.check_command import checked, codes


@pytest.mark.parametrize(
    ("policy", "batches", "rests"),
    [
        ("short", (3, 2), [(1, 0, 0), (1, 0, 0)]),
        ("fill", (3, 2), [(0, 1, 0), (0, 1, 0)]),
        ("drop", (2, 1), [(0, 0, 1), (0, 0, 1)]),
    ],
)
def test_bucket_table_states_what_happens_to_the_remainder(
    quick: Path, policy: str, batches: tuple[int, int], rests: list[tuple[int, int, int]]
) -> None:
    outcome = checked(f"data.remainder={policy}")
    rows = {str(row.bucket): row for row in outcome.buckets}
    assert [(row.images, row.visits) for row in rows.values()] == [(5, 5), (3, 3)]
    assert tuple(row.batches for row in rows.values()) == batches
    assert [(row.short, row.repeated, row.left_out) for row in rows.values()] == rests
    assert outcome.length is not None
    assert outcome.length.steps_an_epoch == sum(batches)


def test_repeats_are_counted_as_visits(quick: Path) -> None:
    row = checked("data.repeats=3").buckets[0]
    assert (row.images, row.visits, row.batches, row.rest) == (5, 15, 8, 1)


@pytest.mark.slow
def test_memory_for_background_saves_is_counted_and_shortage_noted(
    quick: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copies, waits = checked(), checked("run.save.asynchronous=false")
    assert copies.memory is not None
    assert waits.memory is not None
    assert (copies.memory.copy, waits.memory.copy) == (copies.memory.checkpoint, 0)
    assert copies.memory.peak == waits.memory.peak
    assert any("host memory while a checkpoint is written" in line for line in page.page(copies))
    assert not any("host memory while a checkpoint is written" in line for line in page.page(waits))
    monkeypatch.setattr(check, "free_memory", lambda: copies.memory.peak + copies.memory.copy)  # type: ignore[union-attr]
    sentence = "training waits while one is written"
    assert sentence in " ".join(checked().notes)
    assert sentence not in " ".join([*copies.notes, *checked("run.save.asynchronous=false").notes])


def test_disk_too_small_for_two_checkpoints_is_a_problem(quick: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(durable, "free_bytes", lambda folder: 4_000_000)
    outcome = checked()
    assert codes(outcome.problems) == ["E1710"]
    disk = outcome.disk
    assert disk is not None
    assert disk.least == 2 * disk.checkpoint > 4_000_000
    refuse_full_disk(replace(disk, free=disk.least))
    refuse_full_disk(replace(disk, free=disk.checkpoint, there=1))  # one of the two exists already
    with pytest.raises(StorageError, match="two checkpoints"):
        refuse_full_disk(replace(disk, free=disk.least - 1))
    with pytest.raises(StorageError, match="cache on the same disk") as caught:
        refuse_full_disk(replace(disk, free=disk.least, cache=1, one_disk=True))
    assert caught.value.code == "E1710"
    with pytest.raises(StorageError, match=r"data\.cache\.path") as caught:
        refuse_full_disk(replace(disk, free=10**12, cache=11_000_000))
    assert caught.value.code == "E1711"


def test_disk_that_fills_up_during_the_run_is_a_note(quick: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(durable, "free_bytes", lambda folder: 16_000_000)
    outcome = checked("run.save.keep=9")
    assert not outcome.problems
    assert any("run.save.keep" in note for note in outcome.notes)


def test_cached_entries_need_no_more_disk(quick: Path) -> None:
    words = ["data.cache.latents=true", "data.cache.text=true", "data.cache.dtype=fp16"]
    before = {need.kind: need for need in checked(*words).caches}
    assert (before["latents"].entries, before["latents"].present) == (8, 0)
    assert (before["text"].entries, before["text"].present) == (7, 0)  # six captions and the empty one
    assert before["latents"].bytes == 5 * 8 * 8 * 8 * 2 + 3 * 8 * 6 * 10 * 2
    assert before["text"].missing_bytes == before["text"].bytes
    assert cache.run(["recipe.yaml", *words]) == 0
    after = {need.kind: need for need in checked(*words).caches}
    assert [(need.present, need.missing_bytes) for need in after.values()] == [(8, 0), (7, 0)]
    stored = sum(p.stat().st_size for kind in ("latents", "text") for p in (quick / "cache" / kind).rglob("*"))
    assert sum(need.bytes for need in after.values()) <= stored


@pytest.mark.parametrize(
    ("every", "times"),
    [
        ([], 0),
        ([Every(100, "steps")], 9),
        ([Every(300, "steps")], 3),
        ([Every(2, "epochs")], 4),
        ([Every(5, "minutes")], None),
        ([Every(2, "epochs"), Every(100, "steps")], 9),  # steps that both name count once
        ([Every(2, "epochs"), Every(150, "steps")], 9),
    ],
)
def test_number_of_saves_excludes_the_last_step(every: list[Every], times: int | None) -> None:
    assert times_due(every, Length(100, 100, 1000, 10.0)) == times


def test_counting_takes_no_longer_for_long_runs() -> None:
    several = [Every(6, "steps"), Every(1, "epochs"), Every(15, "steps")]
    due = {step for gap in (6, 10, 15) for step in range(gap, 1000, gap)}
    assert times_due(several, Length(10, 10, 1000, 100.0)) == len(due)
    assert times_due(several, Length(10, 10, 10**9, 1e8)) == 10**9 * 8 // 30 - 1


def opened(recipe: Recipe) -> assemble.Model:
    runtime = check.Runtime(torch.device("cpu"), check.Launch(), recipe.run)
    return assemble.open_model(resolve(recipe, 1), assemble.open_files(recipe), runtime)


def take_a_step(model: assemble.Model) -> None:
    for parameter in model.trained.values():
        parameter.grad = torch.ones_like(parameter, dtype=parameter.grad_dtype)
    update = model.update
    rates = {group.name: 1e-5 for group in update.groups}
    one, none = torch.ones(()), torch.zeros(())
    update.apply(loss_scale=one, norms=one[None], found_inf=none, lr=rates, update_ema=False)


@pytest.mark.parametrize(
    "words",
    [
        ["optim.optimizer.kind=adafactor", "run.precision=bf16", "run.weight_dtype=pure"],
        pytest.param(["optim.optimizer.kind=adafactor", "optim.ema.rule=ramp"], marks=pytest.mark.slow),
        pytest.param(
            ["optim.optimizer.kind=adacoor", "run.precision=bf16", "run.weight_dtype=same"], marks=pytest.mark.slow
        ),
    ],
    ids=["adafactor, pure bf16", "adafactor", "adacoor"],
)
def test_estimated_checkpoint_size_matches_the_file(words: list[str], quick: Path) -> None:
    outcome = checked(*words)
    assert outcome.disk is not None
    assert outcome.memory is not None
    model = opened(outcome.recipe)
    line = dict(outcome.description)["saving"]
    take_a_step(model)
    tensors = model.update.tensors()
    assert outcome.disk.checkpoint == sum(t.numel() * t.element_size() for t in tensors.values())
    assert f"{format_bytes(outcome.disk.checkpoint)} each" in line
    assert outcome.memory.optimizer == sum(
        t.numel() * t.element_size() for n, t in tensors.items() if n.startswith("opt.") and "/" in n
    )
    written = state.write(quick / "kept", step=1, tensors=tensors, values={}, recipe_digest="")
    on_disk = sum(path.stat().st_size for path in written.glob("*.safetensors"))
    assert 0 <= on_disk - outcome.disk.checkpoint < 200 * len(tensors), "only headers are added"


@pytest.mark.slow
@pytest.mark.parametrize(
    "export",
    [
        "{dtype: fp16}", "{dtype: bf16, single_file: true}", "{parts: trained, single_file_dtype: fp16}",
        *(pytest.param(one, marks=pytest.mark.slow) for one in
          ("{dtype: fp32}", "{single_file: true}", "{single_file: true, single_file_dtype: fp16}")),
    ],
)  # fmt: skip
def test_estimated_export_size_matches_the_file(export: str, quick: Path) -> None:
    outcome = checked(f"run.export={export}")
    assert outcome.disk is not None
    model = opened(outcome.recipe)
    place = quick / "exports"
    exports.write(
        model,
        outcome.recipe,
        outcome.recipe.run.export,
        place,
        model.update.masters,
        name="x",
        name_alone="y",
        facts={},
        say=print,
    )
    on_disk = sum(path.stat().st_size for path in place.rglob("*") if path.is_file())
    assert abs(on_disk - outcome.disk.export) < 200_000, "only headers are added; another dtype would be a megabyte"
