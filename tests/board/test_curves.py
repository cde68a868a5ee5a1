"""Thinning of curves keeps their shape."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mezzotint.board.curves import charts, select_points, thin_points
from mezzotint.board.reading.metrics import RunMetrics

values = st.lists(st.floats(allow_nan=True, allow_infinity=True, width=32), min_size=1, max_size=400)


@given(values, st.integers(4, 60))
def test_thinning_keeps_extremes_and_ends(numbers: list[float], most: int) -> None:
    x, y = np.arange(len(numbers), dtype=np.float64), np.array(numbers)
    few_x, few_y = thin_points(x, y, most)
    assert len(few_x) <= max(4, most)
    assert np.all(np.diff(few_x) > 0)
    np.testing.assert_array_equal(few_y, y[few_x.astype(int)])
    assert (few_x[0], few_x[-1]) == (0, len(numbers) - 1)
    finite = y[np.isfinite(y)]
    if len(finite):
        kept = few_y[np.isfinite(few_y)]
        assert (kept.min(), kept.max()) == (finite.min(), finite.max())


def test_curves_of_one_kind_share_a_chart_with_short_names(tmp_path: Path) -> None:
    tags = ["loss_at/125", "loss_shadow_at/125", "loss_at/quartile_0", "loss_shadow_at/quartile_3", "cats_at/875"]
    facts = {f"val/{tag}": 0.5 for tag in tags} | {"loss": 1.0, "loss/by_timestep/9": 1.0, "lr/denoiser": 1e-4}
    (tmp_path / "metrics.jsonl").write_text(json.dumps({"step": 1} | facts) + "\n")
    metrics = RunMetrics(tmp_path / "metrics.jsonl")
    metrics.follow(blocks=8)
    drawn = {one["name"]: one for one in charts(metrics, tmp_path, axis="step", width=100)["charts"]}
    labels = {name: [series["label"] for series in chart["series"]] for name, chart in drawn.items()}
    assert labels == {
        "Loss": ["loss"], "Loss by timestep": ["90–100 %"], "Learning rate": ["denoiser"],
        "Held-out loss by timestep": ["cats 875", "125", "125 averaged"],
        "Held-out loss by quartile": ["0–25 %", "75–100 % averaged"],
    }  # fmt: skip
    assert [name for name, chart in drawn.items() if chart["ordered"]] == [
        "Loss by timestep", "Held-out loss by timestep", "Held-out loss by quartile"
    ]  # fmt: skip


def test_drift_has_its_charts_and_the_last_value_before_a_step(tmp_path: Path) -> None:
    tags = ["class", "class_shadow", "leak", "leak_shadow", "class_at/499", "class_shadow_at/499"]
    lines = [{"step": step} | {f"drift/{tag}": step / 10 for tag in tags} for step in (0, 2, 4)]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    metrics = RunMetrics(tmp_path / "metrics.jsonl")
    metrics.follow(blocks=8)
    drawn = charts(metrics, tmp_path, axis="step", width=100)["charts"]
    assert {one["name"]: [series["label"] for series in one["series"]] for one in drawn} == {
        "Change from the base": ["class", "class_shadow"],
        "Leak": ["leak", "leak_shadow"],
        "Change from the base by timestep": ["class 499", "class 499 averaged"],
    }
    assert [metrics.table.latest("drift/leak", step) for step in (0, 3, 9)] == pytest.approx([0.0, 0.2, 0.4])
    assert metrics.table.latest("drift/trigger", 9) is None


def test_thinning_keeps_one_spike_among_a_million() -> None:
    y = np.zeros(1_000_000)
    y[123_456] = 9.0
    x = np.arange(1_000_000, dtype=np.float64)
    few_x, few_y = thin_points(x, y, 2000)
    assert few_x[few_y.argmax()] == 123_456


def test_selected_range_includes_the_points_next_to_it() -> None:
    x = np.arange(10, dtype=np.float64)
    few_x, _ = select_points(x, x, 100, begin=3.5, end=6.5)
    assert few_x.tolist() == [3, 4, 5, 6, 7]
