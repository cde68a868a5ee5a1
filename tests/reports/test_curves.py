"""Curves read from the metrics of a run."""

from __future__ import annotations

import pytest

from mezzotint.reports.curves import curves_of, read_metrics
from mezzotint.reports.run_report import summarize_run
from mezzotint.run_folder import RunFolder
from mezzotint.stages import StepReport
from mezzotint.training.callbacks.metrics_log import MetricsLog
from mezzotint.training.progress import Progress


def decaying(step: int) -> float:
    """A loss that is constant for ten steps, then falls."""
    return 1.0 / (1 + (step - 1) // 10)


def test_last_line_of_a_step_counts_and_truncated_lines_are_skipped(folder: RunFolder) -> None:
    folder.metrics.write_text('{"step": 1, "loss": 3.0}\n{"step": 1, "loss": 2.0}\n{"step": 2, "lo')
    assert [line["loss"] for line in read_metrics(folder).steps] == [2.0]


@pytest.mark.parametrize(
    "line",
    [f'"loss": {"9" * 399}', '"loss": "x"', '"loss": [1]', '"loss": 1, "lr/unet": {}', '"val/loss": "low"',
     '"loss": 1, "steps_since": Infinity', '"loss": 1, "epoch": "first"', '"loss": 1, "samples_since": null'],
)  # fmt: skip
def test_lines_with_non_numeric_values_are_skipped(line: str, folder: RunFolder) -> None:
    folder.metrics.write_text(f'{{"step": 1, "loss": 3.0}}\n{{"step": 2, {line}}}\n')
    metrics = read_metrics(folder)
    assert [line["step"] for line in (*metrics.steps, *metrics.held_out)] == [1]
    assert curves_of(metrics).loss.tolist() == [3.0]
    assert "steps         1," in "\n".join(summarize_run(folder))


def test_report_smooths_over_all_steps_like_the_progress_line(folder: RunFolder) -> None:
    log = MetricsLog(folder, every=10)
    mean = 0.0
    for step in range(1, 201):
        mean = 0.98 * mean + 0.02 * decaying(step)
        log.on_step(StepReport(step - 1, loss=decaying(step), samples=4, seconds=0.5), Progress(last_step=200))
    log.close()
    assert f"smoothed {mean / (1 - 0.98**200):.4f} at the end, of 21 logged steps" in "\n".join(summarize_run(folder))
    assert curves_of(read_metrics(folder)).running_mean[-1] == pytest.approx(mean / (1 - 0.98**200))
