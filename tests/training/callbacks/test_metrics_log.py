"""metrics.jsonl, sample logs and TensorBoard events: exact, resumable, and never the end of a run."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from mezzotint import durable, outside
from mezzotint.errors import StorageError
from mezzotint.run_folder import RunFolder
from mezzotint.stages import StepReport
from mezzotint.training.callbacks._running_mean import RunningMean
from mezzotint.training.callbacks._scalars import TAGS
from mezzotint.training.callbacks.metrics_log import MetricsLog, SampleLog, truncate
from mezzotint.training.callbacks.tensorboard_log import TensorBoardLog
from mezzotint.training.progress import Progress
from mezzotint.training.trainer import sample_keys_digest


def report(step: int, **changes: object) -> StepReport:
    made = StepReport(
        step=step,
        epoch=step // 10,
        loss=0.1 + 1 / (3 + step),
        norm=2.0 / 3.0,
        rates={"denoiser": 1e-4 / 3, "denoiser.no_decay": 1e-4 / 3},
        samples=4,
        seconds=0.5,
        wait_seconds=0.125,
        applied=True,
        overflow=False,
        keys=("a.png", "b.png"),
        timesteps=(5.0, 995.0),
        losses=(0.1, 1 / 3),
    )
    return replace(made, **changes)  # type: ignore[arg-type]


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return RunFolder(tmp_path / "run").open()


def log_steps(callback: MetricsLog | SampleLog | TensorBoardLog, steps: range, last_step: int = 1000) -> None:
    for step in steps:
        # as the trainer does: reports come one step late
        callback.on_step(report(step), Progress(step=step + 2, last_step=last_step))
    callback.close()


def test_a_line_of_metrics_reads_back_to_the_last_bit(folder: RunFolder) -> None:
    log_steps(MetricsLog(folder, every=1), range(3))
    lines = outside.read_lines(folder.metrics)
    assert [line["step"] for line in lines] == [1, 2, 3]
    assert lines[1]["loss"] == report(1).loss
    assert lines[1]["norm"] == 2.0 / 3.0
    assert lines[1]["lr/denoiser"] == 1e-4 / 3
    assert lines[1]["images_per_s"] == 8.0
    assert lines[1]["data_wait"] == 0.25
    assert lines[1]["samples_digest"] == sample_keys_digest(("a.png", "b.png"))
    assert set(lines[1]) >= {"epoch", "applied", "overflow", "loss_scale", "memory_bytes", "samples"}


def test_the_first_every_nth_and_the_last_step_are_logged(folder: RunFolder) -> None:
    log_steps(MetricsLog(folder, every=4), range(10), last_step=10)
    assert [line["step"] for line in outside.read_lines(folder.metrics)] == [1, 4, 8, 10]


def test_lines_between_which_steps_lie_tell_what_those_did(folder: RunFolder) -> None:
    log = MetricsLog(folder, every=4)
    for step in range(6):
        log.on_step(report(step), Progress(step=step + 2, last_step=10))
    kept = json.loads(json.dumps(log.state()))
    log.close()
    resumed = MetricsLog(folder, every=4)
    resumed.load(kept)
    log_steps(resumed, range(6, 10), last_step=10)
    lines = outside.read_lines(folder.metrics)
    assert [line["step"] for line in lines] == [1, 4, 8, 10]
    assert [line["steps_since"] for line in lines] == [1, 3, 4, 2]
    each = report(0)
    assert sum(line["samples_since"] for line in lines) == 10 * each.samples
    assert sum(line["seconds_since"] for line in lines) == pytest.approx(10 * each.seconds)
    whole = RunningMean()
    for step in range(10):
        whole.take(report(step).loss)
    assert lines[-1]["loss_avg"] == whole.value, "of all steps, and over a resume"


def test_a_run_whose_checkpoint_knows_no_smoothed_loss_goes_on_without_it(folder: RunFolder) -> None:
    log = MetricsLog(folder, every=1)
    log.load({"steps": 3, "samples": 12, "seconds": 1.5})
    log_steps(log, range(3, 4))
    (line,) = outside.read_lines(folder.metrics)
    assert line["steps_since"] == 4
    assert "loss_avg" not in line


def test_values_that_are_not_finite_stay_valid_json_and_read_back(folder: RunFolder) -> None:
    log = MetricsLog(folder, every=1)
    log.on_step(report(0, loss=float("nan"), norm=float("inf")), Progress(step=1, last_step=9))
    line = json.loads(folder.metrics.read_text(), parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    assert np.isnan(float(line["loss"]))
    assert float(line["norm"]) == float("inf")


def test_sample_log_says_which_samples_timesteps_and_losses_made_a_step(folder: RunFolder) -> None:
    log_steps(SampleLog(folder, rank=3), range(2))
    (_, line) = outside.read_lines(folder.logs / "samples.rank3.jsonl")
    assert line == {"step": 2, "keys": ["a.png", "b.png"], "timesteps": [5.0, 995.0], "losses": [0.1, 1 / 3]}


def test_a_killed_and_resumed_run_has_each_step_once(folder: RunFolder) -> None:
    metrics = MetricsLog(folder, every=1)
    metrics.numbers(0, {"val/loss": 1.0})
    log_steps(metrics, range(7))
    log_steps(SampleLog(folder, rank=1), range(7))
    durable.append_line(folder.bad_steps, {"step": 2})
    durable.append_line(folder.bad_steps, {"step": 6})
    with open(folder.metrics, "a") as file:
        file.write('{"step": 8, "lo')  # killed while it was written
    assert truncate(folder, 5) == 3 + 2 + 1
    resumed = MetricsLog(folder, every=1)
    log_steps(resumed, range(5, 9))
    steps = [json.loads(line)["step"] for line in folder.metrics.read_text().splitlines()]
    assert steps == [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]
    assert [line["step"] for line in outside.read_lines(folder.bad_steps)] == [2]
    assert [line["step"] for line in outside.read_lines(folder.logs / "samples.rank1.jsonl")] == [1, 2, 3, 4, 5]
    assert truncate(folder, 9) == 0
    assert not list(folder.path.glob(".*"))


def test_a_run_that_starts_anew_in_its_folder_says_everything_again(folder: RunFolder) -> None:
    log = MetricsLog(folder, every=1)
    log.numbers(0, {"val/loss": 1.0})
    log_steps(log, range(2))
    assert truncate(folder, 0) == 3
    assert folder.metrics.read_text() == ""


def test_a_torn_line_does_not_spoil_the_next_one(folder: RunFolder) -> None:
    folder.metrics.write_text('{"step": 1, "loss')
    log_steps(MetricsLog(folder, every=1), range(1, 2))
    assert [line["step"] for line in outside.read_lines(folder.metrics)] == [2]


def test_a_full_disk_is_said_once_and_logging_goes_on_when_there_is_room(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = MetricsLog(folder, every=1)
    with monkeypatch.context() as full:
        full.setattr(durable, "open_own", lambda *_, **__: open("/dev/full", "ab", buffering=0))  # noqa: SIM115
        with pytest.raises(StorageError, match="No space left") as caught:
            log.on_step(report(0), Progress(step=1, last_step=9))
        assert caught.value.code == "E1705"
        log.on_step(report(1), Progress(step=2, last_step=9))
    log.on_step(report(2), Progress(step=3, last_step=9))
    assert [line["step"] for line in outside.read_lines(folder.metrics)] == [3]


def events(folder: RunFolder) -> EventAccumulator:
    found = EventAccumulator(str(folder.logs), size_guidance={"scalars": 0, "images": 0})
    return found.Reload()


def is_of(tag: str, pattern: str) -> bool:
    own, given = pattern.replace("0..9", "T").split("/"), tag.split("/")
    return len(own) == len(given) and all(o == g or o.isupper() for o, g in zip(own, given, strict=True))


def test_tensorboard_events_read_back_with_the_documented_tags(folder: RunFolder) -> None:
    board = TensorBoardLog(folder, every=1)
    for step in range(3):
        fp16 = report(step, memory_bytes=3 * 2**30, loss_scale=65536.0)
        board.on_step(fp16, Progress(step=step + 2, last_step=99))
    board.numbers(3, {"val/loss": 0.5, "val/loss_at/125": 0.25, "val/loss_shadow": 0.5, "val/loss_shadow_at/125": 0.5})
    board.numbers(3, {"val/faces": 0.5, "val/train": 0.25, "val/all": 0.5})
    pixels = np.arange(8 * 6 * 3, dtype=np.uint8).reshape(8, 6, 3)
    board.picture(3, "0/raw", pixels)
    board.picture(3, "0/shadow", pixels)
    board.close()
    read = events(folder)
    tags = {*read.Tags()["scalars"], *read.Tags()["images"]}
    assert [tag for tag in tags if not any(is_of(tag, pattern) for pattern in TAGS)] == []
    assert [pattern for pattern in TAGS if not any(is_of(tag, pattern) for tag in tags)] == []
    assert [event.step for event in read.Scalars("loss/step")] == [1, 2, 3]
    assert read.Scalars("loss/step")[1].value == pytest.approx(report(1).loss)
    assert read.Scalars("memory/peak_gib")[0].value == 3.0
    assert read.Scalars("loss/by_timestep/9")[0].value == pytest.approx(1 / 3)
    image = read.Images("preview/0/raw")[0]
    assert (image.width, image.height) == (6, 8)
    assert image.encoded_image_string.startswith(b"\x89PNG")


def test_losses_between_two_points_are_averaged_by_timestep(folder: RunFolder) -> None:
    board = TensorBoardLog(folder, every=3, num_timesteps=1000)
    for step, loss in enumerate((9.0, 1.0, 3.0)):
        board.on_step(report(step, timesteps=(250.0,), losses=(loss,)), Progress(step=step + 2, last_step=99))
    board.close()
    points = events(folder).Scalars("loss/by_timestep/2")
    assert [(point.step, point.value) for point in points] == [(1, 9.0), (3, 2.0)]


def test_a_resumed_run_hides_what_the_killed_attempt_wrote_beyond_its_checkpoint(folder: RunFolder) -> None:
    log_steps(TensorBoardLog(folder, every=1), range(8))
    (killed,) = folder.logs.glob("events.*")
    killed.write_bytes(killed.read_bytes()[:-5])  # killed while it was written
    board = TensorBoardLog(folder, every=1, start_step=5)
    board.numbers(6, {"val/loss": 0.5})
    log_steps(board, range(5, 7))
    assert [event.step for event in events(folder).Scalars("loss/step")] == [1, 2, 3, 4, 5, 6, 7]


def test_the_smoothed_loss_goes_on_over_a_resume(folder: RunFolder) -> None:
    whole, first = TensorBoardLog(folder, every=1), TensorBoardLog(folder, every=1)
    for step in range(4):
        whole._scalars.take(report(step))
        if step < 2:
            first._scalars.take(report(step))
    rest = TensorBoardLog(folder, every=1, start_step=2)
    rest.load(json.loads(json.dumps(first.state())))
    for step in range(2, 4):
        rest._scalars.take(report(step))
    assert rest.state() == whole.state()


def test_the_smoothed_loss_starts_at_the_first_value_and_passes_over_nan() -> None:
    smoothed = RunningMean()
    assert smoothed.value is None
    smoothed.take(2.0)
    smoothed.take(float("nan"))
    assert smoothed.value == pytest.approx(2.0)


def test_events_that_cannot_be_written_are_an_error_once(tmp_path: Path) -> None:
    board = TensorBoardLog(RunFolder(tmp_path / "gone"), every=1)
    with pytest.raises(StorageError) as caught:
        board.on_step(report(0), Progress(step=1, last_step=9))
    assert caught.value.code == "E1705"
    board.on_step(report(1), Progress(step=2, last_step=9))


def test_records_carry_their_length_first(folder: RunFolder) -> None:
    log_steps(TensorBoardLog(folder, every=1), range(1))
    (path,) = folder.logs.glob("events.*")
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    assert b"brain.Event:2" in data[12 : 12 + length]


def test_an_installed_tensorflow_is_not_imported(folder: RunFolder, tmp_path: Path) -> None:
    (tmp_path / "tensorflow.py").write_text("raise SystemExit('tensorflow was imported')")
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
        "from pathlib import Path\n"
        "from mezzotint.run_folder import RunFolder\n"
        "from mezzotint.training.callbacks.tensorboard_log import TensorBoardLog\n"
        f"TensorBoardLog(RunFolder(Path({str(folder.path)!r})), 1).numbers(1, {{'val/loss': 0.5}})\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert events(folder).Scalars("val/loss")[0].value == 0.5
