"""The overfit report: best step, gap, EMA, quartiles, and the text."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Sequence

import pytest
from PIL import Image

from mezzotint import durable
from mezzotint.reports.curves import overfit_curves, read_metrics
from mezzotint.reports.overfit_report import write_overfit_report
from mezzotint.run_folder import RunFolder


def measured(folder: RunFolder, held: Sequence[float], **others: Sequence[float]) -> None:
    """Lines of a run that measured every 100 steps. others: train, shadow."""
    for place, loss in enumerate(held):
        numbers = {"val/loss": loss, **{f"val/loss_at/quartile_{q}": loss * (2 - q / 2) for q in range(4)}}
        if "train" in others:
            own = others["train"][place]
            numbers |= {"val/train": own, **{f"val/train_at/quartile_{q}": own * (2 - q / 2) for q in range(3)}}
        if "shadow" in others:
            numbers["val/loss_shadow"] = others["shadow"][place]
        durable.append_line(folder.metrics, {"step": 100 * place, **numbers})


def words_of(folder: RunFolder) -> list[str]:
    write_overfit_report(folder)
    words: list[str] = json.loads((folder.logs / "overfit.json").read_text())["words"]
    return words


def test_overfit_report_states_best_step_and_gap(folder: RunFolder) -> None:
    held, shadow = [1.0, 0.6, 0.5, 0.7, 0.8], [1.0, 0.8, 0.7, 0.6, 0.65]
    measured(folder, held, train=[0.98, 0.5, 0.3, 0.2, 0.1], shadow=shadow)
    first, second, third = words_of(folder)
    assert first.startswith("The held-out loss was lowest at step 200 and has risen by 60% since")
    assert "has grown: 0.0200 at the first measurement, 0.7000 at the last" in second
    assert third == "At the end the averaged weights are better on held-out images: 0.6500, the trained ones 0.8000."
    facts = json.loads((folder.logs / "overfit.json").read_text())
    assert facts["best"] == {"trained": {"step": 200, "loss": 0.5}, "average": {"step": 300, "loss": 0.6}}
    assert facts["gap"]["best"] == pytest.approx(0.2)
    assert facts["quartiles"][0]["gap"]["last"] == pytest.approx(1.4)
    assert facts["quartiles"][3]["gap"]["last"] is None
    text = (folder.logs / "overfit.txt").read_text()
    assert "step 200 (best)" in text
    assert "quartile 3, held out" in text
    assert "quartile 3, gap" not in text


@pytest.mark.parametrize(
    ("held", "phrase"),
    [
        ([1.0, 0.8, 0.6, 0.602], "shows no overfitting"),
        ([1.0, 1.1, 1.2, 1.3], "never lower than before training"),
        ([1.0, 0.9], "too few measurements"),
        ([1.0, 0.9, float("nan")], "too few measurements"),
    ],
)
def test_overfit_report_of_runs_without_overfitting(folder: RunFolder, held: list[float], phrase: str) -> None:
    for place, loss in enumerate(held):
        durable.append_line(folder.metrics, {"step": place, "val/loss": loss if loss == loss else "nan"})
    words = words_of(folder)
    assert phrase in words[0]
    assert "run.validation.training_fraction=0.1 measures it" in words[1]
    assert len(words) == 2


def test_overfit_report_uses_mean_of_several_sets_and_needs_one(folder: RunFolder) -> None:
    assert write_overfit_report(folder) == ()
    durable.append_line(folder.metrics, {"step": 0, "val/train": 1.0, "val/train_at/quartile_0": 1.0})
    assert write_overfit_report(folder) == ()
    line = {"val/a": 1.0, "val/b": 2.0, "val/all": 1.5, "val/a_at/quartile_1": 3.0, "val/b_at/quartile_1": 4.0}
    durable.append_line(folder.metrics, {"step": 1, **line})
    curves = overfit_curves(read_metrics(folder))
    assert curves is not None
    assert (curves.tag, curves.held_out[1], curves.held_quartiles[1][1]) == ("val/all", 1.5, 3.5)


def test_overfit_plot_has_the_size_of_other_plots(folder: RunFolder, plot_overfit: Callable[..., bytes]) -> None:
    measured(folder, [1.0, 0.6, 0.5, 0.7, 0.8], train=[0.98, 0.5, 0.3, 0.2, 0.1], shadow=[1.0, 0.8, 0.7, 0.6, 0.65])
    curves = overfit_curves(read_metrics(folder))
    assert curves is not None
    with Image.open(io.BytesIO(plot_overfit(curves, best=200, title="fox-$5"))) as image:
        assert image.size == (1650, 1050)
        assert len(image.convert("RGB").getcolors(1 << 20)) > 50
