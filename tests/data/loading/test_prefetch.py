"""Prefetched batches: in order, limited in number, with errors passed on."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import closing

import pytest
import torch

from mezzotint.data.loading.prefetch import Prefetched, steps_ahead
from mezzotint.errors import DatasetError
from mezzotint.stages import Batch, StepBatches

CPU = torch.device("cpu")


class Made:
    """Micro-batches that are created on request and counted while they exist."""

    def __init__(self, world: World, step: int, count: int) -> None:
        self.world, self.step, self.count = world, step, count

    def __iter__(self) -> Iterator[Batch]:
        for index in range(self.count):
            yield self.world.make(self.step, index)


class World:
    def __init__(self, steps: int, *, fails_at: int = -1) -> None:
        self.steps, self.fails_at = steps, fails_at
        self.alive = self.most = 0
        self.made: list[tuple[int, int]] = []
        self.threads: set[str] = set()

    def make(self, step: int, index: int) -> Batch:
        if step == self.fails_at:
            raise DatasetError("gone", code="E1250")
        numbers = torch.full((1, 2), step * 10 + index)
        weakref.finalize(numbers, self._gone)
        self.alive += 1
        self.most = max(self.most, self.alive)
        self.made.append((step, index))
        self.threads.add(threading.current_thread().name)
        key = f"{step}.{index}"
        return Batch((key,), (key,), numbers[:, 0], numbers[:, 0], numbers, numbers, numbers, torch.ones(1))

    def _gone(self) -> None:
        self.alive -= 1

    def __iter__(self) -> Iterator[StepBatches]:
        for step in range(self.steps):
            count = 1 + step % 3
            yield StepBatches(step, 0, count, Made(self, step, count), sizes=(1,) * count)


@pytest.mark.parametrize("ahead", [1, 5])
def test_batches_are_in_order_and_their_number_is_bounded(ahead: int) -> None:
    world = World(12)
    prefetched = Prefetched(world, ahead=ahead, device=CPU)
    keys = []
    for step in prefetched:
        assert (step.count, len(step.sizes)) == (1 + step.step % 3,) * 2
        for batch in step.batches:
            keys.append(batch.keys[0])
            time.sleep(0.002)  # the thread prefetches as far as it may
            assert world.alive <= ahead + 1, "those that wait, and the one in use"
            del batch
    prefetched.close()
    assert keys == [f"{step}.{index}" for step in range(12) for index in range(1 + step % 3)]
    assert world.most <= ahead + 2, "one is being created and another is not freed yet"
    assert world.threads == {"prefetch"}


@pytest.mark.parametrize("seen", [0, 1, 3])
def test_step_can_be_iterated_again_from_its_start(seen: int) -> None:
    """After any number of its batches; later steps are unaffected."""
    world = World(6)
    with closing(Prefetched(world, ahead=2, device=CPU)) as prefetched:
        for step in prefetched:
            if step.step == 2:
                first = iter(step.batches)
                for index in range(seen):
                    assert next(first).keys == (f"2.{index}",)
                assert [batch.keys[0] for batch in step.batches] == ["2.0", "2.1", "2.2"]
            else:
                assert [batch.keys[0] for batch in step.batches] == [f"{step.step}.{i}" for i in range(len(step.sizes))]


def test_error_is_raised_in_place_of_its_batch() -> None:
    world = World(5, fails_at=2)
    prefetched = Prefetched(world, ahead=3, device=CPU)
    steps = iter(prefetched)
    for _ in range(2):
        step = next(steps)
        assert [batch.keys[0] for batch in step.batches]
    with pytest.raises(DatasetError, match="gone"):
        [batch.keys for batch in next(steps).batches]
    prefetched.close()


def test_closing_early_leaves_no_thread() -> None:
    started_in: list[str] = []
    prefetched = Prefetched(
        World(100), ahead=2, device=CPU, begin=lambda: started_in.append(threading.current_thread().name)
    )
    next(iter(prefetched))
    prefetched.close()
    prefetched.close()
    assert started_in == [threading.current_thread().name], "workers must belong to the main thread"
    assert not [thread for thread in threading.enumerate() if thread.name == "prefetch"]


def test_default_prefetch_depends_on_device_and_cache() -> None:
    gpu = torch.device("cuda", 0)
    assert [steps_ahead(None, device, is_cached=cached) for device in (gpu, CPU) for cached in (False, True)] == [
        2,
        2,
        0,
        2,
    ]
    assert [steps_ahead(number, device, is_cached=True) for device in (gpu, CPU) for number in (0, 5)] == [0, 5, 0, 5]


@pytest.mark.parametrize("taken", [0, 1])
def test_unused_batches_are_skipped(taken: int) -> None:
    world = World(6)
    seen = []
    with closing(Prefetched(world, ahead=2, device=CPU)) as prefetched:
        for step in prefetched:
            batches = iter(step.batches)
            seen += [next(batches).keys[0] for _ in range(taken)]
    assert seen == [f"{step}.0" for step in range(6)][: 6 * taken]
    assert len(set(world.made)) == 12, "every batch was created, and none blocked the others"
