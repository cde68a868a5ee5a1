"""Draws `docs/images/densities.png`: how often each σ of a straight path is trained, by density and by shift."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from mezzotint import draws
from mezzotint.diffusion import densities, flow
from mezzotint.settings.sections.flow import FlowSettings

PLACE = Path(__file__).parents[1] / "docs" / "images" / "densities.png"
DENSITIES = {
    "uniform": FlowSettings(density="uniform"),
    "logit-normal (0, 1)": FlowSettings(),
    "logit-normal (1, 1)": FlowSettings(mean=1.0),
    "mode 1.29": FlowSettings(density="mode"),
    "beta (2, 2)": FlowSettings(density="beta"),
    "sigmoid 0.5": FlowSettings(density="sigmoid", sigmoid_scale=0.5),
}
SHIFTS = (1.0, 2.0, 3.0, 6.0)
_DRAWN = 400_000


def main() -> None:
    """Writes the image."""
    figure = Figure(figsize=(11, 4), dpi=110, layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2)
    addresses, edges = draws.keys(0, "timestep", np.arange(_DRAWN)), np.linspace(0, 1, 81)
    for name, settings in DENSITIES.items():
        heights, _ = np.histogram(densities.draw(settings, addresses), edges, density=True)
        left.plot((edges[1:] + edges[:-1]) / 2, heights, label=name, lw=1.4)
    sigma = torch.from_numpy(densities.draw(FlowSettings(), addresses))
    for shift in SHIFTS:
        heights, _ = np.histogram(flow.shift_sigma(sigma, shift).numpy(), edges, density=True)
        right.plot((edges[1:] + edges[:-1]) / 2, heights, label=f"shift {shift:g}", lw=1.4)
    for axes, title in ((left, "densities, not shifted"), (right, "logit-normal (0, 1), shifted")):
        axes.set_title(title, fontsize=10)
        axes.set_xlabel("σ: 0 is the image, 1 is noise", fontsize=9)
        axes.set_ylim(0, 3.2)
        axes.legend(fontsize=8, frameon=False)
    figure.savefig(PLACE, metadata={"Software": None})


if __name__ == "__main__":
    main()
