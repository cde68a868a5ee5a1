"""The command line of EveryDream2's script, pasted with its train.json and optimizer.json: what it trains, where it
lies, how it goes on, and what a train.json that changes does. On the tiny model and a few drawn pictures."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

from mezzotint import durable
from mezzotint.cli import main
from mezzotint.tasks import _live
from mezzotint.training import state

MODEL = Path(__file__).parents[1] / "parity" / "data" / "diffusers" / "tiny_sd"
OURS = (
    "data.cache.path=cache", "data.resolution=64", "data.buckets.shape=square", "data.buckets.step=16",
    "data.workers=0", "run.device=cpu", "run.threads=1", "run.preview.every=null", "run.tensorboard=false",
)  # fmt: skip
PLAIN = {"base": {"optimizer": "adamw", "lr": 1e-3}, "text_encoder_overrides": {"lr": 1e-4}}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to stand in: pictures named as that trainer has them, train.json, optimizer.json."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "input").mkdir()
    for number in range(5):
        Image.new("RGB", (80, 72), (50 * number, 90, 200 - 40 * number)).save(
            tmp_path / "input" / f"a fox, red, number {number}_{number}.png"
        )
    (tmp_path / "optimizer.json").write_text(json.dumps(PLAIN))
    written(tmp_path)
    return tmp_path


def written(here: Path, **more: Any) -> None:
    given = {"resume_ckpt": str(MODEL), "batch_size": 2, "max_epochs": 2, "disable_amp": True, "shuffle_tags": True,
             "lr": None, "log_step": 1, "wandb": False, "notebook": False}  # fmt: skip
    (here / "train.json").write_text(json.dumps(given | more))


def train(*words: str, over: tuple[str, ...] = ()) -> int:
    return main(
        ["train", "--as", "everydream2", *OURS, *over, "--", "python", "train.py", "--config=train.json", *words]
    )


def run_of(here: Path, project: str = "myproj") -> Path:
    """The one run folder of a project."""
    [found] = [path for path in (here / "logs").iterdir() if re.fullmatch(rf"{project}-\d{{8}}-\d{{6}}", path.name)]
    return found


def newest(folder: Path) -> dict[str, torch.Tensor]:
    path = state.newest(folder / "checkpoints").path
    assert path is not None
    return dict(state.read(path).tensors)


def same(one: Path, other: Path) -> bool:
    a, b = newest(one), newest(other)
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def losses(folder: Path) -> list[float]:
    return [line["loss"] for line in durable.read_lines(folder / "metrics.jsonl") if "loss" in line]


def test_the_line_trains_what_it_translates_to_and_lies_where_its_users_look(
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
    assert losses(run) == losses(native)
    assert len(losses(run)) == 6
    assert main(["train", f"logs/{run.name}/recipe.yaml"]) == 0, "the printed line goes on, with nothing left to do"


def test_findlast_goes_on_and_equals_the_run_that_was_not_stopped(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "optimizer.json").write_text(json.dumps({"base": PLAIN["base"] | {"lr_scheduler": "constant"}}))
    assert train("--resume_ckpt=findlast") == 2
    assert "E1507" in capsys.readouterr().err
    assert train("--project_name=whole", "--no_save_ckpt") == 0
    assert train("--max_epochs=1", "--no_save_ckpt") == 0
    half = run_of(here)
    capsys.readouterr()
    assert train("--resume_ckpt=findlast", "--no_save_ckpt") == 0
    said = capsys.readouterr().out
    assert f"logs/{half.name} is gone on with" in said
    assert "not bit-exact" not in said
    assert run_of(here) == half, "no folder of its own"
    assert same(half, run_of(here, "whole"))
    for again in ("--resume_ckpt=findlast", f"--resume_ckpt=logs/{half.name}"):
        assert train(again, "--no_save_ckpt") == 0
        assert "nothing is left to train" in capsys.readouterr().out


def test_a_train_json_that_changes_is_followed_from_the_next_epoch_on_and_the_line_stays_on_top(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    live = {"load_settings_every_epoch": True, "zero_frequency_noise_ratio": 0.1, "max_epochs": 3}
    changes: dict[int, dict[str, Any]] = {
        1: {"min_snr_gamma": 5, "clip_skip": 2, "zero_frequency_noise_ratio": 0.3, "save_full_precision": True,
            "save_every_n_epochs": 1, "save_ckpts_from_n_epochs": 3, "batch_size": 4},
        2: {"min_snr_gamma": None, "clip_skip": "much"},
    }  # fmt: skip
    decide = _live.LiveSettings._decide

    def changing(self: _live.LiveSettings, epoch: int) -> dict[str, Any]:
        written(here, **live | changes.get(epoch, {}))
        return decide(self, epoch)

    monkeypatch.setattr(_live.LiveSettings, "_decide", changing)
    written(here, **live)
    assert train("--zero_frequency_noise_ratio=0.05", "--no_save_ckpt") == 0
    said = capsys.readouterr().out
    events = [e for e in durable.read_lines(run_of(here) / "history.jsonl") if e["event"] == _live.EVENT]
    assert [event["epoch"] for event in events] == [0, 1, 2]
    wanted = {
        "objective.noise_offset": 0.05, "objective.min_snr_gamma": 5.0, "model.clip_skip": 1,
        "run.save.every": ["1 epoch"], "run.export.every": ["1 epoch"], "run.export.from_epoch": 3,
        "run.export.single_file_dtype": "fp32",
    }  # fmt: skip
    assert events[1]["values"] == wanted
    assert "objective.min_snr_gamma" not in events[0]["values"]
    for words in (
        "epoch 2: objective.min_snr_gamma is 5 from here",
        "data.batch_size",
        "cannot change while a run goes",
    ):
        assert words in said
    assert "model.path cannot" not in said
    assert events[2]["values"] == wanted, "a broken file changes nothing"
    assert re.search(
        r"not followed in epoch 3: .*clip_skip in train\.json  E1017 must be a whole number", said, re.DOTALL
    )


def test_the_line_is_measured(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ("--steps=2", "--warm-up=1", "--as-written", "--out=measured", "run.validation.timesteps=1")
    line = ["bench", "--as", "everydream2", *OURS, *flags, "--", "--config=train.json"]
    assert main(line) == 0
    [row, *_] = json.loads((here / "measured" / "bench.json").read_text())["rows"]
    assert row["step_samples"] == [2, 2]
    assert not (here / "logs").exists(), "what a measurement makes is taken away again"


def test_check_reads_the_line_and_everything_beside_it(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--config=train.json", "--lr=9e-6", "--write_schedule", "--flip_p=0.5"]
    assert main(["check", "--as", "everydream2", *OURS, "--", *words]) == 0
    page = " ".join(capsys.readouterr().out.split())
    assert "optim.lr comes to 9e-06 with batches of 2 at 64; advised: 1e-6 in general for SD 1.5" in page
    assert "data.flip is 0.5; advised: Not for faces" in page
    assert "run.schedule_file writes about" in page
    assert not (here / "logs").exists()
