"""The report after a run: the loss plot and the summary."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

from mezzotint import durable, outside
from mezzotint.reports.curves import read_metrics
from mezzotint.reports.run_report import summarize_run, write_run_report
from mezzotint.run_folder import RunFolder

pytestmark = pytest.mark.usefixtures("curves")


def made_up_run(folder: RunFolder, steps: int, *, bad: int | None = None) -> None:
    rng = np.random.default_rng(3)
    with open(folder.metrics, "w") as file:
        for step in range(1, steps + 1):
            if step % 50 == 1:
                held = {"step": step - 1, "val/loss": 0.15 + 0.5 / step**0.5}
                file.write(json.dumps(held | {"val/loss_shadow": 0.14 + 0.6 / step**0.5}) + "\n")
            loss = (0.12 + 0.8 / step**0.5) * float(np.exp(0.3 * rng.standard_normal()))
            rate = 1e-4 * min(1.0, step / 40) * (1 + np.cos(np.pi * step / steps)) / 2
            line = {
                "step": step, "epoch": step // 30, "loss": "nan" if step == bad else loss, "norm": 1.0, "samples": 8,
                "images_per_s": 16.0, "lr/denoiser": rate, "lr/denoiser.no_decay": rate, "lr/text_encoder": rate / 4,
            }  # fmt: skip
            file.write(json.dumps(line) + "\n")


def every_tenth(folder: RunFolder) -> None:
    """Keeps the lines that log_every=10 writes; each summarizes the steps since the last."""
    lines = [line for line in outside.read_lines(folder.metrics) if "loss" in line]
    folder.metrics.unlink()
    last = 0
    for line in lines:
        if line["step"] % 10 == 0 or line["step"] == 1:
            between = line["step"] - last
            durable.append_line(
                folder.metrics,
                line | {"steps_since": between, "samples_since": 8 * between, "seconds_since": 0.5 * between},
            )
            last = line["step"]


def test_loss_plot_is_written_with_every_curve(folder: RunFolder) -> None:
    made_up_run(folder, 400, bad=200)
    written = write_run_report(folder)
    assert [path.relative_to(folder.path).as_posix() for path in written] == ["logs/loss.png", "logs/report.txt"]
    with Image.open(written[0]) as image:
        assert image.size == (1650, 1050)
        colours = {colour for _, colour in image.convert("RGB").getcolors(1 << 20) or []}
    shown = {tuple(bytes.fromhex(c)) for c in ("1f4e8c", "c4462d", "e08e2b", "b9c6d8", "3d7a5f", "7a5fa0")}
    assert shown <= colours


@pytest.mark.parametrize(("steps", "bad"), [(1, None), (1, 1), (2, 2), (5, 1)])
def test_short_and_broken_runs_have_a_plot(folder: RunFolder, steps: int, bad: int | None) -> None:
    made_up_run(folder, steps, bad=bad)
    written = write_run_report(folder)
    with Image.open(written[0]) as image:
        assert np.asarray(image.convert("L")).std() > 1


def test_run_without_steps_has_summary_but_no_plot(folder: RunFolder) -> None:
    assert [path.name for path in write_run_report(folder)] == ["report.txt"]
    assert "none logged" in (folder.logs / "report.txt").read_text()


def test_summary_counts_all_steps_and_states_logged_steps(folder: RunFolder) -> None:
    made_up_run(folder, 60)
    every_tenth(folder)
    text = "\n".join(summarize_run(folder))
    assert "steps         60, the last in epoch 3\n" in text
    assert "samples       480 in 30 s of training, 16 images/s" in text
    assert "at the end, of 7 logged steps" in text


def test_summary_of_incomplete_log_states_what_is_counted(folder: RunFolder) -> None:
    made_up_run(folder, 60)
    every_tenth(folder)
    bare = [{k: v for k, v in line.items() if not k.endswith("_since")} for line in outside.read_lines(folder.metrics)]
    folder.metrics.unlink()
    for line in bare:
        durable.append_line(folder.metrics, line)
    text = "\n".join(summarize_run(folder))
    assert "steps         60, the last in epoch 3, 7 of them counted below" in text
    assert "samples       56 in 3.5 s of training, 16 images/s" in text


def test_summary_states_steps_samples_loss_and_file_locations(folder: RunFolder) -> None:
    made_up_run(folder, 60)
    folder.record("started")
    folder.record("started")
    durable.append_line(folder.bad_steps, {"step": 17})
    (folder.checkpoints / "step-00000060").mkdir()
    (folder.exports / "step-00000060").mkdir()
    (folder.exports / ".partial-x").mkdir()
    text = "\n".join(summarize_run(folder))
    assert "steps         60, the last in epoch 3" in text
    assert "samples       480 in 30 s of training, 16 images/s" in text
    first = read_metrics(folder).steps[0]["loss"]
    assert f"loss          {first:.4f} at step 1, smoothed" in text
    assert "held-out loss 0.6500 at step 0, 0.2200 at step 50, averaged weights 0.2240" in text
    assert "attempts      2" in text
    assert "bad steps     1, the last at step 17" in text
    assert "checkpoints   checkpoints/step-00000060" in text
    assert "exports       exports/step-00000060" in text
    assert "previews      none" in text


def test_summary_states_lowest_held_out_loss_between_start_and_end(folder: RunFolder) -> None:
    made_up_run(folder, 4)
    for step, loss in ((2, 0.4), (3, "nan"), (4, 0.5)):
        durable.append_line(folder.metrics, {"step": step, "val/loss": loss})
    assert "held-out loss 0.6500 at step 0, 0.5000 at step 4, lowest 0.4000 at step 2" in summarize_run(folder)


def test_summary_states_drift_and_the_leak_of_each_checkpoint(folder: RunFolder) -> None:
    made_up_run(folder, 60)
    for step, leak in ((20, 0.9), (40, 0.25)):
        numbers = {"drift/class": 0.1, "drift/class_at/499": 0.2, "drift/leak": leak, "drift/leak_shadow": leak / 2}
        durable.append_line(folder.metrics, {"step": step} | numbers)
    for name in ("step-00000010", "step-00000030", "step-00000060"):
        (folder.checkpoints / name).mkdir()
    (folder.exports / "step-00000060-ema").mkdir()
    text = "\n".join(summarize_run(folder))
    assert "drift         class 0.1000, leak 0.2500 at step 40" in text
    assert "checkpoints/step-00000010, step-00000030 (leak 0.90), step-00000060 (leak 0.25)" in text
    assert "exports/step-00000060-ema (leak 0.12)" in text


def test_reading_a_report_module_does_not_import_matplotlib() -> None:
    code = "import sys, mezzotint.reports.run_report; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
