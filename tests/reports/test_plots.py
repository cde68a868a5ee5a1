"""Plots: which curves they show, with which labels."""

from __future__ import annotations

import io

import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image

from mezzotint.reports import plots
from mezzotint.reports.curves import Metrics, curves_of


@pytest.mark.parametrize(("every", "label"), [(1, "each step"), (10, "logged steps")])
def test_legend_states_plotted_steps(every: int, label: str) -> None:
    axes = Figure().subplots()
    metrics = Metrics([{"step": step, "loss": 1.0 / step} for step in range(every, 201, every)], [])
    plots._draw_loss(axes, curves_of(metrics))
    legend = axes.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == [label, "smoothed over all steps"]


@pytest.mark.filterwarnings("error")
def test_title_with_control_characters_is_plotted_without_warning() -> None:
    figure, above, _ = plots._panels("a\x1b[31m\nb", (3, 1), (0, 1))
    assert above.get_title("left") == "a\\x1b[31m\\nb"
    assert plots._png(figure).startswith(b"\x89PNG")


def test_benchmark_plot_has_one_colour_per_row_and_shades_warmup() -> None:
    runs = [plots.BenchRun(name, [1.0, 0.5, 0.4], [3.0, 1.0, 1.1], [4, 4, 2]) for name in ("fp32", "bf$16")]
    with Image.open(io.BytesIO(plots.plot_bench(runs, title="bench", warm_up=1))) as image:
        assert image.size == (1650, 1050)
        colours = {colour for _, colour in image.convert("RGB").getcolors(1 << 20) or []}
    assert {tuple(bytes.fromhex(colour)) for colour in ("1f4e8c", "c4462d", "f2f2f2")} <= colours


def test_benchmark_plot_has_a_labelled_strip_per_row() -> None:
    rows = {"as written": [2.0, 1.0, 0.5, 1.0], "fast": [1.0, 0.5, 0.25, 0.5], "stock": [4.0, 2.0, 1.0, 2.0]}
    runs = [plots.BenchRun(name, [1.0, 0.9, 0.8, 0.7], seconds, [4] * 4) for name, seconds in rows.items()]
    figure = plots._bench_figure(runs, title="bench", warm_up=1)
    strips = [figure.axes[at : at + 2] for at in range(0, len(figure.axes), 2)]
    assert [left.get_title("left") for left, _ in strips] == [
        "as written: 4.8 images/s", "fast: 9.6 images/s", "stock: 2.4 images/s",
    ]  # fmt: skip
    for run, (left, right) in zip(runs, strips, strict=True):
        curve, counted = left.get_lines()
        assert curve.get_ydata().tolist() == [4 / seconds for seconds in run.seconds]
        assert list(counted.get_ydata()) == [pytest.approx(12 / sum(run.seconds[1:]))] * 2
        assert left.get_ylabel() == "images per second"
        [losses] = right.get_lines()
        assert list(losses.get_ydata()) == run.loss
    assert len({left.get_lines()[0].get_color() for left, _ in strips}) == len(rows)
    [legend] = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["over all counted steps", "warm-up, not counted"]
    figure.draw_without_rendering()
    places = [axes.get_tightbbox() for axes in figure.axes]
    assert not any(legend.get_window_extent().overlaps(place) for place in places), "nothing overlaps the legend"
    assert not any(axes.texts for axes in figure.axes)
    [without] = plots._bench_figure(runs, title="bench", warm_up=0).legends
    assert len(without.get_texts()) == 1


def test_equal_learning_rates_share_one_curve_with_all_names() -> None:
    axes = Figure().subplots()
    steps = np.arange(1.0, 4.0)
    plots._draw_rates(axes, {"denoiser": steps, "denoiser.no_decay": steps, "text_encoder": steps / 4}, steps)
    assert [line.get_label() for line in axes.get_lines()] == ["denoiser, denoiser.no_decay", "text_encoder"]
