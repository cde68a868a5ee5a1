"""The published benchmark of diffusers' script."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mezzotint.cli import main
from mezzotint.data.buckets import buckets
from mezzotint.data.schedule.columns import PlanColumns
from mezzotint.data.schedule.plan import Timeline, plan
from mezzotint.shapes import Size
from mezzotint.tasks.bench import bench
from mezzotint.tasks.bench.measuring import counts
from mezzotint.tasks.reading.arguments import parse_with
from support.run_folders import bench_results

BENCHMARK = [
    *("--use_ema", "--resolution=512", "--center_crop", "--random_flip", "--train_batch_size=8"),
    *("--gradient_accumulation_steps=4", "--max_train_steps=101", "--learning_rate=1e-05", "--max_grad_norm=1"),
    *("--lr_scheduler=constant", "--lr_warmup_steps=0", "--output_dir=sd-pokemon-model"),
    *("--pretrained_model_name_or_path=sd", "--train_data_dir=images"),
]


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Operations are counted and curves plotted in other tests."""
    monkeypatch.setattr(bench, "flops_of_samples", lambda recipe, sizes: {})
    monkeypatch.setattr(bench, "plot_bench", lambda runs, **words: b"")


def columns(images: int) -> PlanColumns:
    keys = np.arange(images, dtype=np.uint64)
    return PlanColumns(keys, np.zeros(images, np.int16), np.ones(images, np.float32))


def test_benchmark_command_gives_the_schedule_of_its_protocol() -> None:
    reading, _ = parse_with(["--as", "diffusers-sd", "--processes=8", "--", *BENCHMARK], "check")
    recipe = reading.recipe
    data = recipe.data
    assert (data.batch_size, recipe.optim.accumulation, recipe.run.steps, data.remainder) == (64, 4, 101, "fill")
    assert (data.buckets.shape, recipe.run.compile, recipe.run.gradient_checkpointing.enabled) == (
        "square",
        False,
        False,
    )
    assert recipe.optim.ema.rule == "ramp"
    accumulation = recipe.optim.accumulation
    epoch = plan(columns(833), data, accumulation=accumulation, seed=0, epoch=0)
    assert (epoch.num_batches, epoch.num_steps, epoch.filled) == (14, 4, 63)
    timeline = Timeline(columns(833), data, accumulation, 0)
    assert timeline.locate(100) == (25, 0)
    each = [counts(timeline, buckets.table(data), step) for step in range(101)]
    assert sum(sum(sizes.values()) for _, sizes in each) == 22_656
    assert sum(distinct for distinct, _ in each[:4]) == 833, "an epoch's repeats are not distinct"
    assert [sum(sizes.values()) for _, sizes in each[96:]] == [256, 256, 256, 128, 256], "step 100 closes an epoch"
    assert each[0][1] == {Size(512, 512): 256}


@pytest.mark.slow
@pytest.mark.usefixtures("quick")
def test_foreign_command_has_two_rows_and_the_published_target(shared_world: Any, tmp_path: Path) -> None:
    line = (
        f"--pretrained_model_name_or_path={shared_world.model} --dataset_name=someone/withdrawn --use_ema "
        "--resolution=64 --center_crop --random_flip --train_batch_size=2 --gradient_accumulation_steps=2 "
        f"--max_train_steps=2 --learning_rate=1e-05 --dataloader_num_workers=0 --output_dir={tmp_path / 'theirs'}"
    ).split()
    ours = ["--stand-in=12", f"data.cache.path={tmp_path / 'cache'}", "run.device=cpu", "model.weights=random"]
    ours.append(f"--out={tmp_path / 'out'}")
    assert main(["bench", "--as", "diffusers-sd", *ours, "--", *line]) == 0
    results = bench_results(tmp_path / "out")
    assert [one["name"] for one in results["rows"]] == ["as written", "fast"]
    assert all(one["target"]["below"] == 0.0456 and one["steps"] == 2 for one in results["rows"])
    assert not (tmp_path / "theirs").exists()
