"""Rows of `bench` and their table."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mezzotint.data.schedule.columns import PlanColumns
from mezzotint.data.schedule.plan import Timeline
from mezzotint.settings.reading.read import read_text
from mezzotint.shapes import Size
from mezzotint.tasks.bench import _page
from mezzotint.tasks.bench._page import Context
from mezzotint.tasks.bench.measuring import Measured, Step


def step(seconds: float, processed: int = 256, distinct: int = 256, loss: float = 0.06) -> Step:
    return Step(seconds, 0.1 * seconds, 2 * seconds, processed, distinct, {Size(512, 512): processed}, loss, 0.0455)


def row(steps: list[Step], **changed: Any) -> dict[str, Any]:
    words = ["data.buckets.shape=square", "data.batch_size=64", "optim.accumulation=4", "data.remainder=fill"]
    recipe = read_text("schema: 1", overrides=words).recipe
    columns = PlanColumns(np.arange(833, dtype=np.uint64), np.zeros(833, np.int16), np.ones(833, np.float32))
    timeline = Timeline(columns, recipe.data, 4, 1)
    measured = Measured("as written", recipe, tuple(steps), timeline, 9.0, 0.0, 10**9, 833)
    context: dict[str, Any] = {
        "processes": 8, "device": "NVIDIA X", "warm_up": 1, "flops": {Size(512, 512): 2 * 10**12},
        "peak": 100e12, "target": 0.0456,
    }  # fmt: skip
    return _page.row(measured, Context(**context | changed), [])


def test_row_has_figures_of_timed_steps() -> None:
    numbers = row([step(99.0), step(2.0), step(3.0), step(1.0, processed=128, distinct=65)])
    assert numbers["timed_steps"] == 3
    assert numbers["images_per_second"] == {"processed": 640 / 6, "distinct": 577 / 6}
    assert numbers["images_per_second_and_device"] == 640 / 48
    assert numbers["seconds_per_step"] == {"median": 2.0, "fastest": 1.0, "slowest": 3.0, "mean": 2.0}
    assert numbers["data_wait_share"] == pytest.approx(0.1)
    assert numbers["cpu_seconds_per_step"] == pytest.approx(4.0)
    assert numbers["flops_per_image"] == 2e12
    assert numbers["mfu"] == pytest.approx(640 * 2e12 / 6 / 8 / 100e12)
    assert numbers["target"] == {"below": 0.0456, "found": 0.0455, "reached": True}


def test_row_has_every_reading_of_the_published_log() -> None:
    steps = [step(2.42), step(2.42), step(2.42), step(0.8, processed=128, distinct=65)] * 25 + [step(2.42)]
    protocol = row(steps)["protocol"]
    assert (protocol["read_at_step"], protocol["total_batch"], protocol["epochs"]) == (100, 256, 26)
    assert (protocol["micro_batches_per_epoch"], protocol["updates_per_epoch"]) == (14, 4)
    assert protocol["fill_ups_per_epoch"] == 63
    assert protocol["bar_seconds_per_step"] == pytest.approx(1.79, abs=0.02)
    assert protocol["ips_by_the_bar"] == pytest.approx(17.9, abs=0.2)
    assert protocol["ips_by_elapsed_time"] == pytest.approx(15.85, abs=0.1)
    assert protocol["images_of_the_run"] == 22_656


def test_progress_bar_rate_matches_published_log() -> None:
    # 4.80 s after the first update and 3.44 s/it after the second mean that the second took 2.49 s
    assert _page.bar_seconds([4.80]) == pytest.approx(4.80)
    assert _page.bar_seconds([4.80, 2.49]) == pytest.approx(3.44, abs=0.005)
    steady = [2.42, 2.42, 2.42, 0.8] * 25
    assert _page.bar_seconds(steady) == pytest.approx(1.79, abs=0.02), "the short last update makes the bar read low"


def test_table_shows_readings_with_remarks() -> None:
    document = {"recipe": "x", "processes": 8, "device": "NVIDIA X", "rows": [row([step(1.0)] * 30)] * 2}
    page = "\n".join(_page.table(document))
    for words in ("0.0455 (below 0.0456)", "does not indicate learning", "14 micro-batches, 4 updates",
                  "counts every update as a full batch", "64 %"):  # fmt: skip
        assert words in page, words
    unknown = {**document, "rows": [row([step(1.0)] * 3, peak=None, target=None)]}
    page = "\n".join(_page.table(unknown))
    assert "unknown peak" in page
    assert "last micro-batch" not in page
    assert "IPS" not in page


def test_rows_are_compared_per_block_of_steps() -> None:
    """Seconds per image relative to the stock loop, in each block of steps after the warm-up."""
    base = row([step(9.0)] + [step(2.0)] * 2 + [step(4.0)] * 2 + [step(6.0)] * 2) | {"name": "stock"}
    mine = row([step(9.0)] + [step(1.0)] * 4 + [step(2.0)] * 2)
    rows = _page.compare([mine, base], 1, by_cpu=False)
    assert rows[1]["against"] is None
    ratio = rows[0]["against"]
    assert (ratio["row"], ratio["by"]) == ("stock", "seconds")
    assert ratio["seconds"] == ratio["cpu_seconds"] == {"median": 3.0, "lowest": 2.0, "highest": 4.0, "rounds": 3}
    page = "\n".join(_page.table({"recipe": "x", "processes": 1, "device": "NVIDIA X", "rows": rows}))
    assert "3 (2 to 4) of stock" in page
    assert "times as fast: by seconds per image" in page
    [alone] = _page.compare([mine], 1, by_cpu=False)
    assert alone["against"] is None
    long = row([step(1.0)] * 45)
    compared = _page.compare([long, long | {"name": "fast"}], 5, by_cpu=True)[1]["against"]
    assert (compared["seconds"]["rounds"], compared["by"], compared["row"]) == (4, "CPU seconds", "as written"), (
        "of ten steps"
    )
