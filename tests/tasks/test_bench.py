"""The verb `bench`: the published protocol's arithmetic, what is counted, and that nothing is left behind."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from mezzotint.cli import main
from mezzotint.data.buckets import buckets
from mezzotint.data.schedule.plan import PlanColumns, Timeline, plan
from mezzotint.errors import RecipeError
from mezzotint.recipe.reading.read import located, read_text
from mezzotint.recipe.sections.data import DataSettings
from mezzotint.shapes import Size
from mezzotint.tasks.bench import _page, _pictures, bench
from mezzotint.tasks.bench._flops import PEAKS, flops_of_samples, peak_flops
from mezzotint.tasks.bench._page import Context
from mezzotint.tasks.bench._protocol import Protocol, bar_seconds, ips
from mezzotint.tasks.bench._run import Measured, Step, counts
from mezzotint.tasks.reading.arguments import parse_with
from mezzotint.tasks.reading.words import parse as parse_words

BENCHMARK = [
    *("--use_ema", "--resolution=512", "--center_crop", "--random_flip", "--train_batch_size=8"),
    *("--gradient_accumulation_steps=4", "--max_train_steps=101", "--learning_rate=1e-05", "--max_grad_norm=1"),
    *("--lr_scheduler=constant", "--lr_warmup_steps=0", "--output_dir=sd-pokemon-model"),
    *("--pretrained_model_name_or_path=sd", "--train_data_dir=pictures"),
]


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Operations are counted and curves drawn in other tests."""
    monkeypatch.setattr(bench, "flops_of_samples", lambda recipe, sizes: {})
    monkeypatch.setattr(bench, "plot_bench", lambda runs, **words: b"")


# --- the protocol ---------------------------------------------------------------------------------------------------


def test_the_published_protocol_is_dealt_out_as_its_log_says() -> None:
    told = Protocol(pictures=833, batch=64, accumulation=4, processes=8, steps=101)
    assert (told.per_device, told.total_batch) == (8, 256)
    assert (told.micro_batches, told.updates, told.epochs) == (14, 4, 26)
    assert (told.fill_ups, told.epoch_images) == (63, 896)
    assert told.images == 25 * 896 + 256 == 22_656


def columns(pictures: int) -> PlanColumns:
    keys = np.arange(pictures, dtype=np.uint64)
    return PlanColumns(keys, np.zeros(pictures, np.int16), np.ones(pictures, np.float32))


def test_the_benchmarks_own_line_becomes_a_recipe_whose_plan_is_the_protocol() -> None:
    reading, _ = parse_with(["--as", "diffusers-sd", "--processes=8", "--", *BENCHMARK], "check")
    recipe = reading.recipe
    data = recipe.data
    assert (data.batch_size, recipe.optim.accumulation, recipe.run.steps, data.remainder) == (64, 4, 101, "fill")
    assert (data.buckets.shape, recipe.run.compile, recipe.run.recompute.enabled) == ("square", False, False)
    assert recipe.optim.ema.rule == "ramp"
    accumulation = recipe.optim.accumulation
    epoch = plan(columns(833), data, accumulation=accumulation, seed=0, epoch=0)
    told = Protocol(833, data.batch_size, accumulation, 8, 101)
    assert (epoch.num_batches, epoch.num_steps, epoch.filled) == (told.micro_batches, told.updates, told.fill_ups)
    timeline = Timeline(columns(833), data, accumulation, 0)
    assert timeline.locate(100) == (25, 0)
    each = [counts(timeline, buckets.table(data), step) for step in range(101)]
    assert sum(sum(sizes.values()) for _, sizes in each) == told.images
    assert sum(distinct for distinct, _ in each[:4]) == 833, "an epoch's repeats are not distinct"
    assert [sum(sizes.values()) for _, sizes in each[96:]] == [256, 256, 256, 128, 256], "step 100 closes an epoch"
    assert each[0][1] == {Size(512, 512): 256}


@pytest.mark.parametrize("pictures", [1, 63, 64, 65, 833, 1024])
@pytest.mark.parametrize("fills", [True, False])
def test_the_protocol_is_the_plan_for_any_number_of_pictures(pictures: int, fills: bool) -> None:
    data = DataSettings(batch_size=16, remainder="fill" if fills else "short", buckets={"shape": "square"})  # type: ignore[arg-type]
    epoch = plan(columns(pictures), data, accumulation=3, seed=1, epoch=0)
    told = Protocol(pictures, 16, 3, 4, steps=7, fills=fills)
    assert (epoch.num_batches, epoch.num_steps, len(epoch.order)) == (
        told.micro_batches,
        told.updates,
        told.epoch_images,
    )
    timeline = Timeline(columns(pictures), data, 3, 1)
    seen = [sum(counts(timeline, buckets.table(data), step)[1].values()) for step in range(7)]
    if told.updates == 1 or 7 % told.updates == 0 or fills:
        assert sum(seen) == told.images or told.micro_batches % 3, "a short update may stand at an epoch's end alone"


def test_the_bar_is_read_as_the_published_log_shows_it() -> None:
    # 4.80 s after the first update and 3.44 s/it after the second mean that the second took 2.49 s
    assert bar_seconds([4.80]) == pytest.approx(4.80)
    assert bar_seconds([4.80, 2.49]) == pytest.approx(3.44, abs=0.005)
    steady = [2.42, 2.42, 2.42, 0.8] * 25
    assert bar_seconds(steady) == pytest.approx(1.79, abs=0.02), "an epoch's short last update makes the bar read low"
    assert ips(256, 1.79, 8) == pytest.approx(17.88, abs=0.005)


# --- what is counted ------------------------------------------------------------------------------------------------


def step(seconds: float, processed: int = 256, distinct: int = 256, loss: float = 0.06) -> Step:
    return Step(seconds, 0.1 * seconds, 2 * seconds, processed, distinct, {Size(512, 512): processed}, loss, 0.0455)


def row(steps: list[Step], **changed: Any) -> dict[str, Any]:
    words = ["data.buckets.shape=square", "data.batch_size=64", "optim.accumulation=4", "data.remainder=fill"]
    recipe = read_text("schema: 1", overrides=words).recipe
    measured = Measured("as written", recipe, tuple(steps), 9.0, 0.0, 10**9, 0.5, (0.2, 0.1), True, 833)
    given: dict[str, Any] = {
        "processes": 8, "device": "NVIDIA X", "is_gpu": True, "warm_up": 1, "flops": {Size(512, 512): 2 * 10**12},
        "peak": 100e12, "target": 0.0456,
    }  # fmt: skip
    return _page.row(measured, Context(**given | changed), [])


def test_a_row_tells_what_was_timed() -> None:
    found = row([step(99.0), step(2.0), step(3.0), step(1.0, processed=128, distinct=65)])
    assert found["timed_steps"] == 3
    assert found["images_per_second"] == {"processed": 640 / 6, "distinct": 577 / 6}
    assert found["images_per_second_and_device"] == 640 / 48
    assert found["seconds_per_step"] == {"median": 2.0, "fastest": 1.0, "slowest": 3.0, "mean": 2.0}
    assert found["data_wait_share"] == pytest.approx(0.1)
    assert found["cpu_seconds_per_step"] == pytest.approx(4.0)
    assert found["gpu_seconds_per_step"] == pytest.approx(16.0)
    assert found["flops_per_image"] == 2e12
    assert found["mfu"] == pytest.approx(640 * 2e12 / 6 / 8 / 100e12)
    assert found["target"] == {"below": 0.0456, "after_step": 4, "found": 0.0455, "reached": True}
    assert found["loss"]["fixed_before"] == 0.2
    assert "gpu_seconds_per_step" not in row([step(1.0)], is_gpu=False)


def test_the_published_readings_stand_side_by_side() -> None:
    steps = [step(2.42), step(2.42), step(2.42), step(0.8, processed=128, distinct=65)] * 25 + [step(2.42)]
    found = row(steps)["protocol"]
    assert (found["read_at_step"], found["total_batch"], found["epochs"]) == (100, 256, 26)
    assert (found["micro_batches_per_epoch"], found["updates_per_epoch"], found["fill_ups_per_epoch"]) == (14, 4, 63)
    assert found["bar_seconds_per_step"] == pytest.approx(1.79, abs=0.02)
    assert found["ips_by_the_bar"] == pytest.approx(17.9, abs=0.2)
    assert found["ips_by_elapsed_time"] == pytest.approx(15.85, abs=0.1)
    assert found["images_per_second_and_device_counted"] == pytest.approx(13.9, abs=0.1)
    assert found["images_of_the_run"] == 22_656


def test_the_table_says_what_a_reading_is_worth() -> None:
    document = {"recipe": "x", "processes": 8, "device": "NVIDIA X", "rows": [row([step(1.0)] * 30)] * 2}
    page = "\n".join(_page.table(document))
    for words in ("0.0455 (below 0.0456)", "says nothing about learning", "0.2000 to 0.1000", "14 micro-batches",
                  "takes every update for a full one", "64 %", "differences within the spread"):  # fmt: skip
        assert words in page, words
    unknown = {**document, "rows": [row([step(1.0)] * 3, peak=None, target=None)]}
    page = "\n".join(_page.table(unknown))
    assert "no peak on record" in page
    assert "last micro-batch" not in page


def test_rounds_measure_the_rows_in_turn() -> None:
    recipe = read_text("schema: 1").recipe
    options = bench._options(parse_words(["x", "--fast", "--rounds=3"], "bench"))
    arms = bench._arms(recipe, options, torch.device("cpu"))
    assert [name for name, _, _ in arms] == [
        "as written", "fast", "as written, round 2", "fast, round 2", "as written, round 3", "fast, round 3",
    ]  # fmt: skip
    assert all((settings == recipe) == name.startswith("as written") for name, settings, _ in arms)
    told = {"recipe": "x", "processes": 8, "device": "NVIDIA X"}
    rows = [row([step(1.0)] * 3) | {"name": name} for name, _, _ in arms]
    assert "rows ran in turn" in "\n".join(_page.table({**told, "rows": rows}))
    assert "--rounds=2 measures them in turn" in "\n".join(_page.table({**told, "rows": rows[:2]}))
    assert bench._options(parse_words(["x"], "bench")).rounds == 1


def test_blocks_of_ten_steps_show_the_spread() -> None:
    found = row([step(1.0)] + [step(1.0)] * 10 + [step(2.0)] * 10 + [step(9.0)] * 3)
    assert found["images_per_second_in_blocks"] == {"blocks": 2, "slowest": 128, "median": 192, "fastest": 256}


@pytest.fixture
def shallow(shared_world: Any, tmp_path: Path) -> Path:
    """The configurations of a model with a denoiser of two levels: quick to count."""
    folder = tmp_path / "shallow"
    shutil.copytree(shared_world.model, folder)
    path = folder / "unet" / "config.json"
    levels = {
        "block_out_channels": [16, 32],
        "down_block_types": ["CrossAttnDownBlock2D", "DownBlock2D"],
        "up_block_types": ["UpBlock2D", "CrossAttnUpBlock2D"],
    }
    path.write_text(json.dumps(json.loads(path.read_text()) | levels))
    return folder


def test_operations_scale_with_places_and_leave_out_what_is_frozen_or_done_twice(shallow: Path) -> None:
    words = [f"model.path={shallow}", "model.weights=random", "run.recompute.enabled=true"]
    recipe = located(read_text("schema: 1", overrides=words))
    found = flops_of_samples(recipe, [Size(32, 32), Size(32, 64), Size(64, 32)])
    assert found[Size(32, 64)] == found[Size(64, 32)] > 1.5 * found[Size(32, 32)]
    plain = [words[0], words[1], "model.train=[denoiser, text_encoder]"]
    both = located(read_text("schema: 1", overrides=plain))
    more = flops_of_samples(both, [Size(32, 32)])[Size(32, 32)] - found[Size(32, 32)]
    # two layers of width 32 over 77 tokens: q, k, v, out (4 · 32²) and the MLP (2 · 32 · 64), each product 2 operations
    # forward and 4 backward, and the two products of attention
    products = 2 * 77 * (4 * 32 * 32 + 2 * 32 * 64)
    attention = 2 * 2 * 77 * 77 * 32
    assert more >= 2 * 3 * (products + attention) * 0.95, "recompute, which only the first has, is not counted"


@pytest.mark.slow
def test_operations_of_the_real_models_are_those_that_were_counted_elsewhere() -> None:
    for name, side, wanted in (("sd1", 512, 2.407), ("sd2", 512, 2.409), ("sd2-v", 768, 6.443)):
        recipe = located(read_text("schema: 1", overrides=[f"model.path={name}", "model.weights=random"]))
        assert flops_of_samples(recipe, [Size(side, side)])[Size(side, side)] / 1e12 == pytest.approx(wanted, rel=1e-3)


def test_peaks_are_found_by_the_devices_own_name() -> None:
    for name, precision, tf32, wanted in (
        ("NVIDIA H200", "bf16", False, 989.4), ("NVIDIA H100 80GB HBM3", "fp16", False, 989.4),
        ("NVIDIA H100 PCIe", "bf16", False, 756.5), ("NVIDIA A100-SXM4-80GB", "bf16", False, 312.0),
        ("NVIDIA A100-SXM4-80GB", "fp32", True, 156.0), ("NVIDIA A100-SXM4-80GB", "fp32", False, 19.5),
        ("Tesla V100-SXM2-16GB", "fp16", False, 125.0), ("Tesla V100-PCIE-32GB", "fp16", False, 112.0),
        ("Tesla V100S-PCIE-32GB", "fp32", False, 16.4), ("NVIDIA B200", "fp32", True, 1100.0),
        ("NVIDIA A10G", "fp32", False, 31.52), ("NVIDIA GeForce RTX 4090", "bf16", False, 165.2),
        ("NVIDIA L4", "bf16", False, 121.0), ("NVIDIA L40S", "bf16", False, 362.05), ("Tesla T4", "fp32", True, 8.1),
    ):  # fmt: skip
        assert peak_flops(name, precision, tf32=tf32) == pytest.approx(wanted * 1e12), name
    unknown = ("AMD Something", "Tesla T4", "NVIDIA H200 MIG 1g.18gb", "NVIDIA GeForce RTX 4090 Laptop GPU",
               "NVIDIA GeForce RTX 4080 SUPER", "NVIDIA GeForce RTX 3090 Ti", "NVIDIA GeForce RTX 5090 D")  # fmt: skip
    assert [name for name in unknown if peak_flops(name, "bf16", tf32=False)] == []
    assert all(p.half >= (p.tf32 or p.fp32) >= p.fp32 > 0 for p in PEAKS)


# --- the stand-in ---------------------------------------------------------------------------------------------------


def test_the_stand_in_is_drawn_once_and_always_the_same(tmp_path: Path) -> None:
    folder = _pictures.folder_of(tmp_path, 12, 48)
    _pictures.draw(folder, 12, 48)
    assert len(list(folder.glob("*.png"))) == len(list(folder.glob("*.txt"))) == 12
    image, caption = _pictures.picture(3, 48)
    with Image.open(folder / "00003.png") as kept:
        assert kept.size == (48, 48)
        assert np.array_equal(np.asarray(kept), np.asarray(image))
    assert (folder / "00003.txt").read_text().strip() == caption
    assert len({path.read_bytes() for path in folder.glob("*.png")}) == 12
    before = {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    _pictures.draw(folder, 12, 48)
    assert {path: path.stat().st_mtime_ns for path in folder.iterdir()} == before
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]


def test_captions_tell_the_pictures_apart() -> None:
    captions = [_pictures.picture(number, 16)[1] for number in range(833)]
    assert len(set(captions)) > 800


# --- whole runs -----------------------------------------------------------------------------------------------------

CHEAP = {"run__validation__timesteps": 1}
"""The loss at fixed timesteps is measured before and after; one timestep shows as much here."""


def document(out: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((out / "bench.json").read_text("utf-8"))
    return found


def test_a_recipe_is_measured_and_nothing_is_left_but_the_numbers(
    shared_world: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    words = shared_world.words("measured", run__steps=5, **CHEAP)
    assert main(["bench", *words, "--warm-up=1", "--target=100"]) == 0
    assert not (shared_world.root / "measured").exists(), "no run folder"
    out = tmp_path / "bench" / "measured"
    assert sorted(p.name for p in out.iterdir()) == ["bench.json", "bench.png", "bench.txt"]
    assert [p.name for p in tmp_path.iterdir()] == ["bench"]
    found = document(out)
    (one,) = found["rows"]
    assert (one["steps"], one["timed_steps"], found["processes"], found["device"]) == (5, 4, 1, "CPU")
    assert one["images_per_second"]["processed"] > 0
    assert one["peak_memory_bytes"] > 10**7
    assert one["flops_per_image"] > 0
    assert one["mfu"] is None
    assert one["protocol"] is None, "pictures of several sizes"
    assert one["target"]["reached"]
    assert np.isfinite(
        [one["loss"][k] for k in ("first", "last", "last_micro_batch", "fixed_before", "fixed_after")]
    ).all()
    shown = capsys.readouterr().out
    assert (out / "bench.txt").read_text("utf-8") in shown
    assert f"lie in {Path('bench/measured')}" in shown
    with Image.open(out / "bench.png") as image:
        assert image.size == (1650, 1050)


@pytest.mark.usefixtures("quick")
def test_a_measured_run_trains_as_a_run_does(shared_world: Any, tmp_path: Path) -> None:
    assert shared_world.train("trained", run__steps=5) == 0
    losses = [line[1] for line in shared_world.end("trained").metrics]
    words = shared_world.words("trained-bench", run__steps=5, **CHEAP)
    assert main(["bench", *words, f"--out={tmp_path / 'out'}"]) == 0
    assert [loss.hex() for loss in document(tmp_path / "out")["rows"][0]["step_loss"]] == losses


@pytest.mark.usefixtures("quick")
def test_a_stand_in_takes_the_place_of_data_that_are_not_there(shared_world: Any, tmp_path: Path) -> None:
    settings = {"data__path": "nosuch", "data__buckets__shape": "square", "data__remainder": "fill", "run__steps": 400}
    words = shared_world.words("stand-in", **settings, **CHEAP, optim__accumulation=2)
    line = [*words, "--stand-in", "21", "--steps", "4", "--fast", "--out", str(tmp_path / "out")]
    assert main(["bench", *line]) == 0
    written, fast = document(tmp_path / "out")["rows"]
    assert written["changes"] == []
    assert {"data.cache.latents=true", "data.cache.text=true", "data.cache.crops=4"} == set(fast["changes"])
    for one in (written, fast):
        told = one["protocol"]
        assert (told["pictures"], told["micro_batches_per_epoch"], told["updates_per_epoch"]) == (21, 6, 3)
        assert (told["fill_ups_per_epoch"], told["epochs"]) == (3, 2)
        assert one["step_samples"] == [8, 8, 8, 8]
        distinct, processed = (one["images_per_second"][k] for k in ("distinct", "processed"))
        assert distinct < processed
    assert fast["cache_seconds"] > 0 == written["cache_seconds"]
    # the same noise, timesteps and order; pictures differ by the placements that the cache keeps
    assert np.allclose(written["step_loss"], fast["step_loss"], rtol=0.1)


@pytest.mark.usefixtures("quick")
def test_a_foreign_line_has_two_rows_and_the_published_target(shared_world: Any, tmp_path: Path) -> None:
    line = (
        f"--pretrained_model_name_or_path={shared_world.model} --dataset_name=someone/withdrawn --use_ema "
        "--resolution=64 --center_crop --random_flip --train_batch_size=2 --gradient_accumulation_steps=2 "
        f"--max_train_steps=2 --learning_rate=1e-05 --dataloader_num_workers=0 --output_dir={tmp_path / 'theirs'}"
    ).split()
    ours = ["--stand-in=12", f"data.cache.path={tmp_path / 'cache'}", "run.device=cpu", "model.weights=random"]
    ours.append("run.validation.timesteps=1")
    ours.append(f"--out={tmp_path / 'out'}")
    assert main(["bench", "--as", "diffusers-sd", *ours, "--", *line]) == 0
    found = document(tmp_path / "out")
    assert [one["name"] for one in found["rows"]] == ["as written", "fast"]
    assert all(one["target"]["below"] == 0.0456 and one["steps"] == 2 for one in found["rows"])
    assert not (tmp_path / "theirs").exists()
    assert not bench._options(parse_words(["--as=diffusers-sd", "--as-written", "--", "x"], "bench")).fast
    plain = bench._options(parse_words(["x"], "bench"))
    assert (plain.fast, plain.target) == (False, None)


@pytest.mark.slow
@pytest.mark.distributed
@pytest.mark.usefixtures("quick")
def test_two_processes_measure_together_and_one_of_them_tells(
    shared_world: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shared = {"data__buckets__shape": "square", "data__remainder": "fill", "run__steps": 4, **CHEAP}
    children = shared_world.fork_group("pair", 2, verb="bench", **shared)
    assert [shared_world.wait(child) for child in children] == [0, 0], shared_world.out("pair")
    assert shared_world.out("pair").count("mezzotint bench") == 1
    pair = document(tmp_path / "bench" / "pair")
    assert main(["bench", *shared_world.words("alone", **shared), f"--out={tmp_path / 'alone'}"]) == 0
    alone = document(tmp_path / "alone")
    assert (pair["processes"], alone["processes"]) == (2, 1)
    for name in ("step_samples",):
        assert pair["rows"][0][name] == alone["rows"][0][name]
    assert np.allclose(pair["rows"][0]["step_loss"], alone["rows"][0]["step_loss"], rtol=1e-4)
    assert pair["rows"][0]["protocol"]["per_device"] == 2


# --- refusals -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("flag", "said"),
    [
        ("--steps=0", "--steps is a whole number of at least 1, got '0'"),
        ("--rounds=0", "--rounds is a whole number of at least 1, got '0'"),
        ("--stand-in=many", "--stand-in is a whole number of at least 1, got 'many'"),
        ("--target=low", "--target is a number, got 'low'"),
        ("--target=nan", "--target is a number, got 'nan'"),
        ("--fats", "did you mean --fast?"),
        ("--fast=2", "--fast takes no value; write --fast"),
    ],
)
def test_what_cannot_be_measured_is_told(flag: str, said: str) -> None:
    with pytest.raises(RecipeError) as caught:
        bench.run(["tiny_cpu", flag])
    assert caught.value.code == "E1012"
    assert said in str(caught.value)


@pytest.mark.usefixtures("quick")
def test_a_warm_up_as_long_as_the_run_leaves_nothing(
    shared_world: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured: list[object] = []
    monkeypatch.setattr(bench, "measure", lambda *given, **more: measured.append(given))
    for words in (["run.steps=2"], ["run.steps=400", "--steps=2"]):
        with pytest.raises(RecipeError, match="leaves none of 2 steps"):
            bench.run([*shared_world.words("short"), *words, "--warm-up=2", f"--out={tmp_path / 'out'}"])
    assert measured == [], "told before anything is trained"


def test_what_is_fast_keeps_the_mathematics() -> None:
    words = ["data.crop=random", "run.precision=bf16", "model.train=[denoiser, text_encoder]"]
    recipe = read_text("schema: 1", overrides=words).recipe
    faster, changes = bench.faster_than(recipe, torch.device("cuda"))
    assert set(changes) == {
        "data.cache.latents=true", "data.cache.crops=4", "run.frozen_dtype=same", "run.compile=true",
    }  # fmt: skip
    assert read_text("schema: 1", overrides=[*words, *changes]).recipe == faster
    plain = read_text("schema: 1").recipe
    assert bench.faster_than(plain, torch.device("cpu"))[1] == ["data.cache.latents=true", "data.cache.text=true"]


def test_results_never_take_the_place_of_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "bench.txt").write_text("mine")
    assert main(["bench", "tiny_cpu", f"--out={tmp_path}"]) == 2
    assert "error[E1014]" in capsys.readouterr().err
    assert [(p.name, p.read_text()) for p in tmp_path.iterdir()] == [("bench.txt", "mine")]
