"""metrics.jsonl and sample logs: exact, resumable, and never ending a run."""

from __future__ import annotations

import json

import numpy as np
import pytest

from mezzotint import durable, outside
from mezzotint.errors import StorageError
from mezzotint.run_folder import RunFolder
from mezzotint.training.callbacks.metrics_log import MetricsLog, SampleLog, keys_digest, truncate
from mezzotint.training.progress import Progress
from support.trainers import log_steps, report


def test_metrics_line_reads_back_bit_exactly(folder: RunFolder) -> None:
    log_steps(MetricsLog(folder, every=1), range(3))
    lines = outside.read_lines(folder.metrics)
    assert [line["step"] for line in lines] == [1, 2, 3]
    assert lines[1]["loss"] == report(1).loss
    assert lines[1]["norm"] == 2.0 / 3.0
    assert lines[1]["lr/denoiser"] == 1e-4 / 3
    assert lines[1]["images_per_s"] == 8.0
    assert lines[1]["data_wait"] == 0.25
    assert lines[1]["samples_digest"] == keys_digest(("a.png", "b.png"))
    assert set(lines[1]) >= {"epoch", "applied", "overflow", "loss_scale", "memory_bytes", "samples"}


def test_first_every_nth_and_last_step_are_logged(folder: RunFolder) -> None:
    log_steps(MetricsLog(folder, every=4), range(10), last_step=10)
    assert [line["step"] for line in outside.read_lines(folder.metrics)] == [1, 4, 8, 10]


def log_with_a_resume(folder: RunFolder, steps: int) -> None:
    """Logs every fourth step of a run that is resumed after its sixth."""
    log = MetricsLog(folder, every=4)
    for step in range(6):
        log.on_step(report(step), Progress(step=step + 2, last_step=10))
    kept = json.loads(json.dumps(log.state()))
    log.close()
    resumed = MetricsLog(folder, every=4)
    resumed.load(kept)
    log_steps(resumed, range(6, steps), last_step=10)


def test_lines_summarize_unlogged_steps_between_them(folder: RunFolder) -> None:
    log_with_a_resume(folder, 10)
    lines = outside.read_lines(folder.metrics)
    assert [line["step"] for line in lines] == [1, 4, 8, 10]
    assert [line["steps_since"] for line in lines] == [1, 3, 4, 2]
    each = report(0)
    assert sum(line["samples_since"] for line in lines) == 10 * each.samples
    assert sum(line["seconds_since"] for line in lines) == pytest.approx(10 * each.seconds)
    mean = 0.0
    for step in range(10):
        mean = 0.98 * mean + 0.02 * report(step).loss
    assert lines[-1]["loss_avg"] == pytest.approx(mean / (1 - 0.98**10)), "of all steps, before and after the resume"
    least = [report(step).losses[0] for step in range(4, 8)]  # at timestep 5; two of them before the resume
    assert lines[2]["loss_at/quartile_0"] == pytest.approx(sum(least) / 4)
    assert "loss_at/quartile_3" in lines[2], "at timestep 995"
    assert "loss_at/quartile_1" not in lines[2], "no sample in this quartile"


def test_losses_by_timestep_are_means_since_last_line_across_resume(folder: RunFolder) -> None:
    log_with_a_resume(folder, 8)
    since = [report(step) for step in range(4, 8)]
    losses: dict[int, list[float]] = {}
    for one in since:
        for timestep, loss in zip(one.timesteps, one.losses, strict=True):
            losses.setdefault(int(timestep // 100), []).append(loss)
    line = outside.read_lines(folder.metrics)[-1]
    bands = {key: value for key, value in line.items() if key.startswith("loss/by_timestep/")}
    assert bands == pytest.approx({f"loss/by_timestep/{band}": np.mean(few) for band, few in losses.items()})
    assert bands


def test_nonfinite_values_are_valid_json_and_read_back(folder: RunFolder) -> None:
    log = MetricsLog(folder, every=1)
    log.on_step(report(0, loss=float("nan"), norm=float("inf")), Progress(step=1, last_step=9))
    line = json.loads(folder.metrics.read_text(), parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    assert np.isnan(float(line["loss"]))
    assert float(line["norm"]) == float("inf")


def test_sample_log_lists_samples_timesteps_and_losses_of_a_step(folder: RunFolder) -> None:
    log_steps(SampleLog(folder, rank=3), range(2))
    (_, line) = outside.read_lines(folder.logs / "samples.rank3.jsonl")
    assert line == {"step": 2, "keys": ["a.png", "b.png"], "timesteps": [5.0, 995.0], "losses": [0.1, 1 / 3]}


def test_killed_and_resumed_run_logs_each_step_once(folder: RunFolder) -> None:
    metrics = MetricsLog(folder, every=1)
    metrics.numbers(0, {"val/loss": 1.0})
    log_steps(metrics, range(7))
    log_steps(SampleLog(folder, rank=1), range(7))
    durable.append_line(folder.bad_steps, {"step": 2})
    durable.append_line(folder.bad_steps, {"step": 6})
    with open(folder.metrics, "a") as file:
        file.write("[" * 20_000 + "\n")  # a foreign line
        file.write('{"step": 8, "lo')  # truncated by a kill
    assert truncate(folder, 5) == 4 + 2 + 1
    resumed = MetricsLog(folder, every=1)
    log_steps(resumed, range(5, 9))
    steps = [json.loads(line)["step"] for line in folder.metrics.read_text().splitlines()]
    assert steps == [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]
    assert [line["step"] for line in outside.read_lines(folder.bad_steps)] == [2]
    assert [line["step"] for line in outside.read_lines(folder.logs / "samples.rank1.jsonl")] == [1, 2, 3, 4, 5]
    assert truncate(folder, 9) == 0
    assert not list(folder.path.glob(".*"))


def test_run_restarted_in_its_folder_logs_everything_again(folder: RunFolder) -> None:
    log = MetricsLog(folder, every=1)
    log.numbers(0, {"val/loss": 1.0})
    log_steps(log, range(2))
    assert truncate(folder, 0) == 3
    assert folder.metrics.read_text() == ""


def test_truncated_line_does_not_corrupt_the_next_one(folder: RunFolder) -> None:
    folder.metrics.write_text('{"step": 1, "loss')
    log_steps(MetricsLog(folder, every=1), range(1, 2))
    assert [line["step"] for line in outside.read_lines(folder.metrics)] == [2]


def test_full_disk_is_reported_once_and_logging_resumes(folder: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    log = MetricsLog(folder, every=1)
    with monkeypatch.context() as full:
        full.setattr(durable, "open_own", lambda *_, **__: open("/dev/full", "ab", buffering=0))  # noqa: SIM115
        with pytest.raises(StorageError, match="No space left") as caught:
            log.on_step(report(0), Progress(step=1, last_step=9))
        assert caught.value.code == "E1705"
        log.on_step(report(1), Progress(step=2, last_step=9))
    log.on_step(report(2), Progress(step=3, last_step=9))
    assert [line["step"] for line in outside.read_lines(folder.metrics)] == [3]
