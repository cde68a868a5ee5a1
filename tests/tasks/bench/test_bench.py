"""`mezzotint bench`: results, options, and that no other files remain."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from mezzotint.cli import main
from mezzotint.errors import RecipeError
from mezzotint.settings.reading.read import read_text
from mezzotint.tasks.bench import bench
from support.run_folders import bench_results


@pytest.mark.slow
def test_bench_measures_recipe_and_leaves_only_results(
    shared_world: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    words = shared_world.words("measured", run__steps=5)
    assert main(["bench", *words, "--warm-up=1", "--target=100"]) == 0
    assert not (shared_world.root / "measured").exists(), "no run folder"
    out = tmp_path / "bench" / "measured"
    assert sorted(p.name for p in out.iterdir()) == ["bench.json", "bench.png", "bench.txt"]
    assert [p.name for p in tmp_path.iterdir()] == ["bench"]
    results = bench_results(out)
    assert results["command"][-2:] == ["--warm-up=1", "--target=100"]
    assert "openmp" in results["environment"]
    (one,) = results["rows"]
    assert (one["steps"], one["timed_steps"], results["processes"], results["device"]) == (5, 4, 1, "CPU")
    assert one["images_per_second"]["processed"] > 0
    assert one["peak_memory_bytes"] > 10**7
    assert one["flops_per_image"] > 0
    assert one["mfu"] is None
    assert one["target"]["reached"]
    assert np.isfinite([one["loss"][k] for k in ("first", "last", "last_micro_batch")]).all()
    shown = capsys.readouterr().out
    assert (out / "bench.txt").read_text("utf-8") in shown
    assert f"results in {Path('bench/measured')}" in shown
    with Image.open(out / "bench.png") as image:
        assert image.size == (1650, 1050)


@pytest.mark.slow
def test_at_most_five_steps_warm_up(shared_world: Any, tmp_path: Path) -> None:
    words = shared_world.words("warm", run__steps=24)
    assert main(["bench", *words, f"--out={tmp_path / 'out'}"]) == 0
    (one,) = bench_results(tmp_path / "out")["rows"]
    assert (one["steps"], one["timed_steps"]) == (24, 19)


@pytest.mark.slow
@pytest.mark.usefixtures("quick")
def test_synthetic_images_replace_missing_data(shared_world: Any, tmp_path: Path) -> None:
    settings = {"data__path": "nosuch", "data__buckets__shape": "square", "data__remainder": "fill", "run__steps": 400}
    words = shared_world.words("stand-in", **settings, optim__accumulation=2)
    line = [*words, "--stand-in", "21", "--target=1", "--steps", "4", "--fast", "--out", str(tmp_path / "out")]
    assert main(["bench", *line]) == 0
    written, fast = bench_results(tmp_path / "out")["rows"]
    assert written["changes"] == []
    assert {"data.cache.latents=true", "data.cache.text=true", "data.cache.crops=4"} == set(fast["changes"])
    for one in (written, fast):
        protocol = one["protocol"]
        assert (protocol["images"], protocol["micro_batches_per_epoch"], protocol["updates_per_epoch"]) == (21, 6, 3)
        assert (protocol["fill_ups_per_epoch"], protocol["epochs"]) == (3, 2)
        assert one["step_samples"] == [8, 8, 8, 8]
        distinct, processed = (one["images_per_second"][k] for k in ("distinct", "processed"))
        assert distinct < processed
    assert fast["cache_seconds"] > 0 == written["cache_seconds"]
    # the same noise, timesteps and order; crops differ, as the cache has four of each image
    assert np.allclose(written["step_loss"], fast["step_loss"], rtol=0.1)


@pytest.mark.parametrize(
    ("flag", "said"),
    [
        ("--steps=0", "--steps is a whole number of at least 1, got '0'"),
        ("--against=theirs", "--against can only be stock, got 'theirs'"),
        ("--stand-in=many", "--stand-in is a whole number of at least 1, got 'many'"),
        ("--target=low", "--target is a number, got 'low'"),
        ("--target=nan", "--target is a number, got 'nan'"),
        ("--fats", "did you mean --fast?"),
        ("--fast=2", "--fast takes no value; write --fast"),
    ],
)
def test_invalid_bench_options_are_refused(flag: str, said: str) -> None:
    with pytest.raises(RecipeError) as caught:
        bench.run(["tiny_cpu", flag])
    assert caught.value.code == "E1012"
    assert said in str(caught.value)


@pytest.mark.usefixtures("quick")
def test_warmup_as_long_as_the_run_is_refused(
    shared_world: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured: list[object] = []
    monkeypatch.setattr(bench, "measure", lambda *arguments, **more: measured.append(arguments))
    for words in (["run.steps=2"], ["run.steps=400", "--steps=2"]):
        with pytest.raises(RecipeError, match="leaves none of 2 steps"):
            bench.run([*shared_world.words("short"), *words, "--warm-up=2", f"--out={tmp_path / 'out'}"])
    assert measured == [], "refused before training"


def test_fast_settings_keep_the_mathematics() -> None:
    words = ["data.crop=random", "run.precision=bf16", "run.frozen_dtype=fp32", "model.train=[denoiser, text_encoder]"]
    recipe = read_text("schema: 1", overrides=words).recipe
    faster, changes = bench.faster_than(recipe, torch.device("cuda"))
    assert set(changes) == {
        "data.cache.latents=true", "data.cache.crops=4", "run.frozen_dtype=same", "run.compile=true",
    }  # fmt: skip
    assert read_text("schema: 1", overrides=[*words, *changes]).recipe == faster
    plain = read_text("schema: 1").recipe
    assert bench.faster_than(plain, torch.device("cpu"))[1] == ["data.cache.latents=true", "data.cache.text=true"]


def test_results_never_overwrite_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "bench.txt").write_text("mine")
    assert main(["bench", "tiny_cpu", f"--out={tmp_path}"]) == 2
    assert "error[E1014]" in capsys.readouterr().err
    assert [(p.name, p.read_text()) for p in tmp_path.iterdir()] == [("bench.txt", "mine")]
