"""The published protocol's arithmetic: how pictures are dealt out, and how a bar is read."""

from __future__ import annotations

import numpy as np
import pytest

from mezzotint.data.buckets import buckets
from mezzotint.data.schedule.plan import PlanColumns, Timeline, plan
from mezzotint.recipe.sections.data import DataSettings
from mezzotint.shapes import Size
from mezzotint.tasks.bench._protocol import Protocol, bar_seconds, ips
from mezzotint.tasks.bench._run import Step, counts


def test_the_published_protocol_is_dealt_out_as_its_log_says() -> None:
    protocol = Protocol.of(pictures=833, batch=64, accumulation=4, processes=8, steps=101)
    assert (protocol.per_device, protocol.total_batch) == (8, 256)
    assert (protocol.micro_batches, protocol.updates, protocol.epochs) == (14, 4, 26)
    assert (protocol.fill_ups, protocol.epoch_images) == (63, 896)
    assert protocol.images == 25 * 896 + 256 == 22_656


def columns(pictures: int) -> PlanColumns:
    keys = np.arange(pictures, dtype=np.uint64)
    return PlanColumns(keys, np.zeros(pictures, np.int16), np.ones(pictures, np.float32))


@pytest.mark.parametrize("pictures", [1, 63, 64, 65, 833, 1024])
@pytest.mark.parametrize("fills", [True, False])
def test_the_protocol_is_the_plan_for_any_number_of_pictures(pictures: int, fills: bool) -> None:
    data = DataSettings(batch_size=16, remainder="fill" if fills else "short", buckets={"shape": "square"})  # type: ignore[arg-type]
    epoch = plan(columns(pictures), data, accumulation=3, seed=1, epoch=0)
    protocol = Protocol.of(pictures, 16, 3, 4, steps=7, fills=fills)
    assert (epoch.num_batches, epoch.num_steps, len(epoch.order)) == (
        protocol.micro_batches,
        protocol.updates,
        protocol.epoch_images,
    )
    timeline = Timeline(columns(pictures), data, 3, 1)
    seen = [sum(counts(timeline, buckets.table(data), step)[1].values()) for step in range(7)]
    if protocol.updates == 1 or 7 % protocol.updates == 0 or fills:
        assert sum(seen) == protocol.images or protocol.micro_batches % 3, (
            "a short update may stand at an epoch's end alone"
        )


def test_the_bar_is_read_as_the_published_log_shows_it() -> None:
    # 4.80 s after the first update and 3.44 s/it after the second mean that the second took 2.49 s
    assert bar_seconds([4.80]) == pytest.approx(4.80)
    assert bar_seconds([4.80, 2.49]) == pytest.approx(3.44, abs=0.005)
    steady = [2.42, 2.42, 2.42, 0.8] * 25
    assert bar_seconds(steady) == pytest.approx(1.79, abs=0.02), "an epoch's short last update makes the bar read low"
    assert ips(256, 1.79, 8) == pytest.approx(17.88, abs=0.005)


def step(seconds: float, processed: int = 256, distinct: int = 256, loss: float = 0.06) -> Step:
    return Step(seconds, 0.1 * seconds, 2 * seconds, processed, distinct, {Size(512, 512): processed}, loss, 0.0455)
