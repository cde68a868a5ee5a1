"""The command of EveryDream2's script with its train.json and optimizer.json: what it trains, where results are, how it
resumes, and what a changing train.json does. On the tiny model and a few generated images."""

from __future__ import annotations

import json
import math
import re
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from live_files import make_unchangeable, recorded_events, write_before_each_epoch
from PIL import Image

from mezzotint import outside
from mezzotint.cli import main
from mezzotint.settings.recipe import SINCE_ZERO
from mezzotint.tasks.bench import bench
from support.run_folders import logged, tensors_of
from support.supported_table import require_a_line_trains_in_two_processes

OURS = (
    "data.cache.path=cache", "data.resolution=64", "data.buckets.shape=square", "data.buckets.step=16",
    "data.workers=0", "run.device=cpu", "run.threads=1", "run.preview.every=null", "run.tensorboard=false",
)  # fmt: skip
PLAIN = {"base": {"optimizer": "adamw", "lr": 1e-3}, "text_encoder_overrides": {"lr": 1e-4}}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shallow_sd: Path) -> Path:
    """The current folder: a model, images named as that trainer names them, train.json, optimizer.json."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(shallow_sd, tmp_path / "model")
    (tmp_path / "input").mkdir()
    for number in range(5):
        Image.new("RGB", (80, 72), (50 * number, 90, 200 - 40 * number)).save(
            tmp_path / "input" / f"a fox, red, number {number}_{number}.png"
        )
    (tmp_path / "optimizer.json").write_text(json.dumps(PLAIN))
    written(tmp_path)
    return tmp_path


def written(here: Path, **more: Any) -> None:
    values = {"resume_ckpt": str(here / "model"), "batch_size": 2, "max_epochs": 2, "disable_amp": True,
             "shuffle_tags": True, "lr": None, "log_step": 1, "wandb": False, "notebook": False}  # fmt: skip
    (here / "train.json").write_text(json.dumps(values | more))


def train(*words: str, over: tuple[str, ...] = ()) -> int:
    return main([*line(*words, over=over)])


def line(*words: str, over: tuple[str, ...] = ()) -> list[str]:
    return ["train", "--as", "everydream2", *OURS, *over, "--", "python", "train.py", "--config=train.json", *words]


def run_of(here: Path, project: str = "myproj") -> Path:
    """The one run folder of a project."""
    [folder] = [path for path in (here / "logs").iterdir() if re.fullmatch(rf"{project}-\d{{8}}-\d{{6}}", path.name)]
    return folder


def same(one: Path, other: Path) -> bool:
    a, b = tensors_of(one), tensors_of(other)
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def rates(folder: Path, part: str) -> list[float]:
    return [line[f"lr/{part}"] for line in outside.read_lines(folder / "metrics.jsonl") if "loss" in line]


def printed_line(message: str, before: str) -> list[str]:
    """The words after `mezzotint` of a printed command."""
    [printed] = re.findall(rf"{before}: mezzotint (train .*)", message)
    return shlex.split(printed)


def test_command_trains_as_its_recipe_and_writes_the_usual_folders(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert train("--ema_decay_rate=0.9", "--ema_update_interval=1", "--write_schedule", "^") == 0
    run = run_of(here)
    name = "last-myproj-ep02-gs00006"  # two epochs of three batches
    assert (run / "ckpts").readlink() == Path("exports")
    assert sorted(path.name for path in run.glob("ep*")) == [f"ep{n}_batch_schedule.txt" for n in (0, 1)]
    for folder in (name, f"{name}_ema"):
        assert (run / "ckpts" / folder / "model_index.json").is_file()
        assert (here / f"{folder}.safetensors").is_file()
    capsys.readouterr()
    line = ["--config=train.json", "--ema_decay_rate=0.9", "--ema_update_interval=1", "--project_name=native"]
    assert main(["translate", "--as", "everydream2", "--", *line]) == 0
    (here / "native.yaml").write_text(capsys.readouterr().out)
    assert main(["train", "native.yaml", *OURS]) == 0
    native = run_of(here, "native")
    assert same(run, native)
    assert logged(run) == logged(native)
    assert len(logged(run)) == 6
    assert main(["train", f"logs/{run.name}/recipe.yaml"]) == 0


@pytest.mark.slow
def test_findlast_resumes_bit_exactly(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "optimizer.json").write_text(json.dumps({"base": PLAIN["base"] | {"lr_scheduler": "constant"}}))
    assert train("--resume_ckpt=findlast") == 2
    assert "E1507" in capsys.readouterr().err
    assert train("--project_name=whole", "--no_save_ckpt") == 0
    assert train("--max_epochs=1", "--no_save_ckpt") == 0
    half = run_of(here)
    capsys.readouterr()
    assert train("--resume_ckpt=findlast", "--no_save_ckpt") == 0
    output = capsys.readouterr().out
    assert f"resuming logs/{half.name}; its model is" in output
    assert "not bit-exact" not in output
    assert run_of(here) == half
    assert same(half, run_of(here, "whole"))
    assert train(f"--resume_ckpt=logs/{half.name}", "--no_save_ckpt") == 0
    assert "nothing is left to train" in capsys.readouterr().out


def test_changed_train_json_applies_from_the_next_epoch(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    live = {"load_settings_every_epoch": True, "zero_frequency_noise_ratio": 0.1, "max_epochs": 3}
    changes: dict[int, dict[str, Any]] = {
        1: {"min_snr_gamma": 5, "clip_skip": 2, "zero_frequency_noise_ratio": 0.3, "save_full_precision": True,
            "save_every_n_epochs": 1, "save_ckpts_from_n_epochs": 3, "batch_size": 4},
        2: {"min_snr_gamma": None, "clip_skip": "much"},
    }  # fmt: skip
    write_before_each_epoch(monkeypatch, lambda epoch: written(here, **live | changes.get(epoch, {})))
    written(here, **live)
    assert train("--zero_frequency_noise_ratio=0.05", "--no_save_ckpt") == 0
    output = capsys.readouterr().out
    events = recorded_events(run_of(here))
    assert [event["epoch"] for event in events] == [0, 1, 2]
    expected = {
        "objective.noise_offset": 0.05, "objective.zero_terminal_snr": False, "sample.guidance_rescale": 0.0,
        "objective.min_snr_gamma": 5.0, "model.clip_skip": 1,
        "run.save.every": ["1 epoch"], "run.export.every": ["1 epoch"], "run.export.from_epoch": 3,
        "run.export.single_file_dtype": "fp32",
    }  # fmt: skip
    assert events[1]["values"] == expected
    assert "objective.min_snr_gamma" not in events[0]["values"]
    for words in (
        "epoch 2: objective.min_snr_gamma is 5 from here",
        "by min_snr_gamma in train.json; it was None",
        "train.json: batch_size in train.json cannot change during a run",
    ):
        assert words in output
    assert "model.path cannot" not in output
    assert events[2]["values"] == expected, "a broken file changes nothing"
    assert re.search(r"is ignored in epoch 3: .*clip_skip in train\.json  E1017 must be an integer", output, re.DOTALL)


@pytest.mark.slow
def test_bench_measures_the_command(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "flops_of_samples", lambda recipe, sizes: {})
    monkeypatch.setattr(bench, "plot_bench", lambda runs, **words: b"")
    flags = ("--steps=2", "--warm-up=1", "--as-written", "--out=measured", "run.validation.timesteps=1")
    line = ["bench", "--as", "everydream2", *OURS, *flags, "--", "--config=train.json"]
    assert main(line) == 0
    [row, *_] = json.loads((here / "measured" / "bench.json").read_text())["rows"]
    assert row["step_samples"] == [2, 2]
    assert not (here / "logs").exists(), "what a measurement makes is taken away again"


@pytest.mark.usefixtures("unmeasured")
def test_check_reads_the_command_and_its_files(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--config=train.json", "--lr=9e-6", "--write_schedule", "--flip_p=0.5"]
    # as trainSD21.json spells it: of five images four are left for the third epoch, which then has two batches
    written(here, max_epochs=3, rated_dataset=True, rated_dataset_target_dropout_rate=20)
    assert main(["check", "--as", "everydream2", *OURS, "--", *words]) == 0
    page = " ".join(capsys.readouterr().out.split())
    assert "optim.lr is effectively 9e-06 with batches of 2 at 64; advised: 1e-6 in general for SD 1.5" in page
    assert "data.flip is 0.5; advised: Not for faces" in page
    assert "length 8 steps" in page
    assert "rated_dataset_target_dropout_rate in train.json: is called rated_dataset_target_dropout_percent now" in page
    assert "run.schedule_file writes about" in page
    assert not (here / "logs").exists()


# --- without an optimizer.json; five images are one batch, so that an epoch is a step ---------------------------------

STEP = {"batch_size": 5, "no_save_ckpt": True, "shuffle_tags": False}


def test_minimal_command_trains_and_prints_how_to_extend_the_run(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "optimizer.json").unlink()
    written(here, **STEP, max_epochs=1)
    assert train() == 0
    output = capsys.readouterr().out
    assert "using adamw with float32 moments; the run keeps it" in output
    assert "the text encoder's rate is" not in output
    run = run_of(here)
    events = outside.read_lines(run / "history.jsonl")
    assert [e["optim.optimizer.kind"] for e in events if e["event"] == "started"] == ["adamw"]
    assert "kind: adamw\n" in (run / "recipe.yaml").read_text()
    assert train("--resume_ckpt=findlast") == 0
    output = capsys.readouterr().out
    assert "this run's is adamw, kept" in output
    assert "to train it further, raise max_epochs in train.json, or run: mezzotint train --as" in output
    assert main(printed_line(output, "or run")) == 0
    assert "not bit-exact" not in capsys.readouterr().out
    assert run_of(here) == run
    assert (rates(run, "denoiser"), rates(run, "text_encoder")) == ([1e-6] * 2, [5e-7] * 2)


@pytest.mark.slow
@pytest.mark.usefixtures("unmeasured")
def test_cosine_acts_on_both_networks_and_a_longer_run_resumes(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "optimizer.json").unlink()
    written(here, **STEP, max_epochs=3)
    assert train("--lr_scheduler=cosine", "--lr=1e-5", over=("optim.optimizer.kind=adamw",)) == 0
    run = run_of(here)
    there = [1e-5 * (1 + math.cos(math.pi * step / 4)) / 2 for step in range(3)]  # the decay of 3 batches is 4
    assert rates(run, "denoiser") == pytest.approx(there)
    assert rates(run, "text_encoder") == pytest.approx(there)
    written(here, **STEP, max_epochs=4)
    words = ("--lr_scheduler=cosine", "--lr=1e-5", "--resume_ckpt=findlast")
    capsys.readouterr()
    for command in ("check", "train"):
        assert main([command, *line(*words, over=("optim.optimizer.kind=adamw",))[1:]]) == 2
        output = capsys.readouterr().err
        assert "E1510" in output
        again = printed_line(output, "not bit-exact")
    assert "run.allow_change=[run.epochs]" in again
    assert main(again) == 0
    assert len(rates(run, "denoiser")) == 4


def test_run_started_with_another_default_keeps_it(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Where there is no optimizer.json the text encoder's rate was a cosine once."""
    (here / "optimizer.json").write_text(json.dumps({"text_encoder_overrides": {"lr": 5e-7, "lr_scheduler": "cosine"}}))
    written(here, **STEP, max_epochs=2, save_every_n_epochs=1)
    assert train() == 0
    run = run_of(here)
    shutil.rmtree(run / "checkpoints" / "step-00000002")
    (here / "optimizer.json").unlink()
    assert train("--resume_ckpt=findlast") == 0
    assert "not bit-exact" not in capsys.readouterr().out
    assert rates(run, "text_encoder") == pytest.approx([5e-7, 5e-7 * (1 + math.cos(math.pi / 3)) / 2])


# --- -1 during a run --------------------------------------------------------------------------------------------------


def live(here: Path, monkeypatch: pytest.MonkeyPatch, *epochs: dict[str, Any]) -> Callable[[], None]:
    """train.json changes before each epoch. Returns a function that writes its first version again."""
    whole = STEP | {"load_settings_every_epoch": True, "max_epochs": len(epochs), "save_every_n_epochs": 1}

    def begin() -> None:
        written(here, **whole | {"zero_frequency_noise_ratio": 0.1})

    write_before_each_epoch(monkeypatch, lambda epoch: written(here, **whole | epochs[epoch]))
    begin()
    return begin


@pytest.mark.slow
def test_live_minus_one_switches_zero_terminal_snr_on_and_off(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    minus, half = {"zero_frequency_noise_ratio": -1}, {"zero_frequency_noise_ratio": 0.5}
    live(here, monkeypatch, minus, minus, half)
    assert train() == 0
    output = capsys.readouterr().out
    for words in (
        "epoch 1: objective.noise_offset is 0 from here, by zero_frequency_noise_ratio in train.json; it was 0.1",
        "epoch 1: objective.zero_terminal_snr is true from here, by zero_frequency_noise_ratio in train.json",
        "epoch 1: sample.guidance_rescale is 0.7 from here",
        "zero_frequency_noise_ratio in train.json: zero terminal SNR is for models that predict v",
        "epoch 3: objective.noise_offset is 0.5 from here",
        "epoch 3: objective.zero_terminal_snr is false from here",
    ):
        assert output.count(words) == 1, words
    run = run_of(here)
    exported = [json.loads((run / f"exports/{name}/scheduler/scheduler_config.json").read_text())
                for name in ("myproj-ep02-gs00002", "last-myproj-ep03-gs00003")]  # fmt: skip
    assert [bool(one.get("rescale_betas_zero_snr")) for one in exported] == [True, False], "that of their moment"
    monkeypatch.undo()
    monkeypatch.chdir(here)
    written(here, **STEP, max_epochs=2, save_every_n_epochs=1)
    assert train("--zero_frequency_noise_ratio=-1", "--project_name=line") == 0
    assert logged(run)[:2] == logged(run_of(here, "line"))


def test_impossible_live_schedule_is_ignored_with_its_offset(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    both = {"zero_frequency_noise_ratio": -1, "clip_skip": 2}
    live(here, monkeypatch, both, both, both)
    assert train(over=("model.prediction=edm", "objective.noise_offset_per=sample")) == 0
    output = capsys.readouterr().out
    assert output.count("warning: zero_frequency_noise_ratio in train.json is ignored: with objective.zero_termin") == 1
    assert "objective.noise_offset stays 0.1, objective.zero_terminal_snr stays false" in output
    assert "epoch 1: model.clip_skip is 1 from here, by clip_skip in train.json" in output
    events = [event["values"] for event in recorded_events(run_of(here))]
    assert [(e["objective.noise_offset"], e["model.clip_skip"]) for e in events] == [(0.1, 1)] * 3


@pytest.mark.slow
def test_run_started_with_partial_minus_one_resumes_with_it(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    begin = live(here, monkeypatch, *[{"zero_frequency_noise_ratio": -1}] * 3)
    make_unchangeable(monkeypatch, *SINCE_ZERO)
    assert train("--project_name=whole") == 0
    begin()
    assert train() == 0
    run = run_of(here)
    monkeypatch.undo()
    monkeypatch.chdir(here)
    shutil.rmtree(run / "checkpoints" / "step-00000003")
    lines = (run / "history.jsonl").read_text().splitlines(keepends=True)
    begun = [line for line in lines if json.loads(line).get("epoch", 0) < 2]
    (run / "history.jsonl").write_text("".join(begun))
    capsys.readouterr()
    assert train(f"--resume_ckpt=logs/{run.name}") == 0, "-1 in train.json does not make it another run"
    assert "zero_terminal_snr" not in capsys.readouterr().out
    assert same(run, run_of(here, "whole"))


@pytest.mark.slow
@pytest.mark.distributed
def test_command_trains_in_two_processes_of_torchrun(tmp_path: Path, shallow_sd: Path) -> None:
    (tmp_path / "adamw.json").write_text('{"base": {"optimizer": "adamw"}}')
    line = (
        "--resume_ckpt=model", "--data_root=data", "--max_epochs=1", "--disable_amp", "--no_save_ckpt",
        "--optimizer_config=adamw.json",
    )  # fmt: skip
    own = ("data.resolution=64", "data.buckets.shape=square", "data.buckets.step=32", "run.folder=out",
           "run.preview.every=null", "data.workers=0")  # fmt: skip
    output = require_a_line_trains_in_two_processes("everydream2", line, own, shallow_sd)
    assert (tmp_path / "out" / "ckpts" / "last-myproj-ep01-gs00002" / "model_index.json").is_file()
    assert "whatever the launcher's precision" in output
