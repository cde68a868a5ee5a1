"""A row of `bench`, and the table that is read off the rows."""

from __future__ import annotations

from typing import Any

import pytest

from mezzotint.errors import RecipeError
from mezzotint.recipe.reading.read import read_text
from mezzotint.shapes import Size
from mezzotint.tasks.bench import _page, bench
from mezzotint.tasks.bench._page import Context
from mezzotint.tasks.bench._run import Measured, RowLength, Step
from mezzotint.tasks.reading.command_line import parse as parse_words


def step(seconds: float, processed: int = 256, distinct: int = 256, loss: float = 0.06) -> Step:
    return Step(seconds, 0.1 * seconds, 2 * seconds, processed, distinct, {Size(512, 512): processed}, loss, 0.0455)


def row(steps: list[Step], **changed: Any) -> dict[str, Any]:
    words = ["data.buckets.shape=square", "data.batch_size=64", "optim.accumulation=4", "data.remainder=fill"]
    recipe = read_text("schema: 1", overrides=words).recipe
    measured = Measured("as written", recipe, tuple(steps), 9.0, 0.0, 10**9, 0.5, (0.2, 0.1), True, 833)
    context: dict[str, Any] = {
        "processes": 8, "device": "NVIDIA X", "is_gpu": True, "warm_up": 1, "flops": {Size(512, 512): 2 * 10**12},
        "peak": 100e12, "target": 0.0456,
    }  # fmt: skip
    return _page.row(measured, Context(**context | changed), [])


def test_a_row_tells_what_was_timed() -> None:
    numbers = row([step(99.0), step(2.0), step(3.0), step(1.0, processed=128, distinct=65)])
    assert numbers["timed_steps"] == 3
    assert numbers["images_per_second"] == {"processed": 640 / 6, "distinct": 577 / 6}
    assert numbers["images_per_second_and_device"] == 640 / 48
    assert numbers["seconds_per_step"] == {"median": 2.0, "fastest": 1.0, "slowest": 3.0, "mean": 2.0}
    assert numbers["data_wait_share"] == pytest.approx(0.1)
    assert numbers["cpu_seconds_per_step"] == pytest.approx(4.0)
    assert numbers["gpu_seconds_per_step"] == pytest.approx(16.0)
    assert numbers["flops_per_image"] == 2e12
    assert numbers["mfu"] == pytest.approx(640 * 2e12 / 6 / 8 / 100e12)
    assert numbers["target"] == {"below": 0.0456, "after_step": 4, "found": 0.0455, "reached": True}
    assert numbers["loss"]["fixed_before"] == 0.2
    assert "gpu_seconds_per_step" not in row([step(1.0)], is_gpu=False)


def test_the_published_readings_stand_side_by_side() -> None:
    steps = [step(2.42), step(2.42), step(2.42), step(0.8, processed=128, distinct=65)] * 25 + [step(2.42)]
    protocol = row(steps)["protocol"]
    assert (protocol["read_at_step"], protocol["total_batch"], protocol["epochs"]) == (100, 256, 26)
    assert (protocol["micro_batches_per_epoch"], protocol["updates_per_epoch"], protocol["fill_ups_per_epoch"]) == (
        14,
        4,
        63,
    )
    assert protocol["bar_seconds_per_step"] == pytest.approx(1.79, abs=0.02)
    assert protocol["ips_by_the_bar"] == pytest.approx(17.9, abs=0.2)
    assert protocol["ips_by_elapsed_time"] == pytest.approx(15.85, abs=0.1)
    assert protocol["images_per_second_and_device_counted"] == pytest.approx(13.9, abs=0.1)
    assert protocol["images_of_the_run"] == 22_656


def test_the_table_says_what_a_reading_is_worth() -> None:
    document = {"recipe": "x", "processes": 8, "device": "NVIDIA X", "rows": [row([step(1.0)] * 30)] * 2}
    page = "\n".join(_page.table(document))
    for words in ("0.0455 (below 0.0456)", "says nothing about learning", "0.2000 to 0.1000", "14 micro-batches",
                  "takes every update for a full one", "64 %"):  # fmt: skip
        assert words in page, words
    unknown = {**document, "rows": [row([step(1.0)] * 3, peak=None, target=None)]}
    page = "\n".join(_page.table(unknown))
    assert "no peak on record" in page
    assert "last micro-batch" not in page


def test_rows_are_compared_round_by_round() -> None:
    """Seconds of an image over those of the stock loop, in each block after the warm-up."""
    base = row([step(9.0)] + [step(2.0)] * 2 + [step(4.0)] * 2 + [step(6.0)]) | {"name": "stock"}
    mine = row([step(9.0)] + [step(1.0)] * 2 + [step(1.0)] * 2 + [step(2.0)])
    rows = _page.compared([mine, base], [1, 3, 5], by_cpu=False)
    assert rows[1]["against"] is None
    ratio = rows[0]["against"]
    assert (ratio["row"], ratio["by"]) == ("stock", "seconds")
    assert ratio["seconds"] == {"median": 3.0, "lowest": 2.0, "highest": 4.0, "rounds": 3}
    page = "\n".join(_page.table({"recipe": "x", "processes": 1, "device": "NVIDIA X", "rows": rows}))
    assert "3 (2 to 4) of stock" in page
    assert "the ratios of 3 blocks of steps" in page
    without = _page.compared([mine], [1, 3, 5], by_cpu=False)
    assert "times as fast" not in "\n".join(
        _page.table({"recipe": "x", "processes": 1, "device": "X", "rows": without})
    )


def test_cpu_seconds_lead_where_no_gpu_is() -> None:
    def first(device: str) -> str:
        document = {"recipe": "x", "processes": 1, "device": device, "rows": [row([step(1.0)] * 4)]}
        return _page.table(document)[5].strip()

    assert first("CPU").startswith("CPU seconds a step")
    assert first("NVIDIA X").startswith("images/s, processed")


def test_rows_are_compared_in_blocks_after_the_warm_up() -> None:
    assert RowLength(None, 101).ends(40) == [5, 15, 25, 35]
    assert RowLength(None, 101).ends(14) == [3, 6, 9, 12], "at least three blocks"
    assert RowLength(None, 101, warm_up=1, rounds=2).ends(9) == [1, 5]
    assert RowLength(None, 101).ends(1) == [0]
    options = bench._options(parse_words(["x", "--fast", "--rounds=3", "--against=stock"], "bench"))
    assert (options.rounds, options.against) == (3, "stock")
    with pytest.raises(RecipeError, match="knows stock alone"):
        bench._options(parse_words(["x", "--against=theirs"], "bench"))
    assert bench._options(parse_words(["x"], "bench")).rounds is None


def test_blocks_of_ten_steps_show_the_spread() -> None:
    numbers = row([step(1.0)] + [step(1.0)] * 10 + [step(2.0)] * 10 + [step(9.0)] * 3)
    assert numbers["images_per_second_in_blocks"] == {"blocks": 2, "slowest": 128, "median": 192, "fastest": 256}
