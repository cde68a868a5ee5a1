"""What is drawn: which curves, under which names."""

from __future__ import annotations

import io

import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image

from mezzotint.reports import plots
from mezzotint.reports.curves import Metrics, curves_of


@pytest.mark.parametrize(("every", "label"), [(1, "each step"), (10, "logged steps")])
def test_the_legend_says_which_steps_are_drawn(every: int, label: str) -> None:
    axes = Figure().subplots()
    metrics = Metrics([{"step": step, "loss": 1.0 / step} for step in range(every, 201, every)], [])
    plots._draw_loss(axes, curves_of(metrics))
    legend = axes.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == [label, "smoothed over all steps"]


def test_a_benchmark_has_a_colour_a_row_and_its_warm_up_shaded() -> None:
    runs = [plots.BenchRun(name, [1.0, 0.5, 0.4], [3.0, 1.0, 1.1], [4, 4, 2]) for name in ("fp32", "bf$16")]
    with Image.open(io.BytesIO(plots.plot_bench(runs, title="bench", warm_up=1))) as image:
        assert image.size == (1650, 1050)
        colours = {colour for _, colour in image.convert("RGB").getcolors(1 << 20) or []}
    assert {tuple(bytes.fromhex(colour)) for colour in ("1f4e8c", "c4462d", "f2f2f2")} <= colours


def test_equal_rates_are_drawn_once_under_all_their_names() -> None:
    axes = Figure().subplots()
    steps = np.arange(1.0, 4.0)
    plots._draw_rates(axes, {"denoiser": steps, "denoiser.no_decay": steps, "text_encoder": steps / 4}, steps)
    assert [line.get_label() for line in axes.get_lines()] == ["denoiser, denoiser.no_decay", "text_encoder"]
