"""Densities of σ against diffusers and other trainers, from the same random numbers; draws by address."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file
from torch import Tensor

from mezzotint import draws
from mezzotint.diffusion import densities, flow
from mezzotint.settings.sections.flow import FlowSettings

RECORDS = Path(__file__).parents[1] / "parity" / "data" / "flow" / "densities.safetensors"


@pytest.fixture(scope="module")
def records() -> dict[str, Tensor]:
    return load_file(RECORDS)


def at_quantiles(settings: FlowSettings, quantiles: NDArray[np.float64]) -> NDArray[np.float64]:
    """σ below which a share of all draws is, of each density but `mode` and `heavy-tail`: of those what they make of
    even numbers, which falls and rises again where the scale is large."""
    if settings.density in ("logit-normal", "sigmoid", "log-snr"):
        normals = torch.special.ndtri(torch.from_numpy(quantiles)).numpy()
        return densities.from_normals(settings, -normals if settings.density == "log-snr" else normals)
    return densities.from_uniforms(settings, quantiles)


def settings_of(name: str) -> FlowSettings:
    """A recorded density by its name. diffusers' u is 1 − σ, so that its mean has the other sign."""
    kind, *numbers = name.removeprefix("logit_").split("_")
    match kind:
        case "normal":
            return FlowSettings(density="logit-normal", mean=-float(numbers[0]), std=float(numbers[1]))
        case "mode":
            return FlowSettings(density="mode", mode_scale=float(numbers[0]))
        case _:
            return FlowSettings(density="sigmoid", sigmoid_scale=float(numbers[0]))


def test_quantiles_equal_the_recorded_ones(records: dict[str, Tensor]) -> None:
    quantiles, seen = records["quantiles"].numpy(), 0
    for key, recorded in records.items():
        if not key.startswith("of_quantiles."):
            continue
        name, seen = key.removeprefix("of_quantiles."), seen + 1
        settings = settings_of(name)
        if settings.density == "logit-normal":
            ours = 1 - at_quantiles(settings, 1 - quantiles)
        elif settings.density == "mode":
            ours = 1 - at_quantiles(settings, quantiles)
        else:
            ours = at_quantiles(settings, quantiles)
            if len(name.split("_")) > 2:
                _, _, how, number = name.split("_")
                shift = float(number) if how == "shift" else float(np.exp(float(number)))
                ours = flow.shift_sigma(torch.from_numpy(ours), shift).numpy()
        np.testing.assert_allclose(ours, recorded.numpy(), rtol=1e-12, atol=1e-12, err_msg=name)
    assert seen == 22


def test_uniform_numbers_map_like_the_library(records: dict[str, Tensor]) -> None:
    for key in (key for key in records if key.startswith("drawn.") and key.endswith((".normal", ".uniform"))):
        name = key.split(".", 1)[1].rpartition(".")[0]
        numbers, theirs = records[key].double().numpy(), records[f"drawn.{name}.u"].double().numpy()
        normal = FlowSettings(density="logit-normal")  # mean and deviation are in the recorded numbers
        ours = (
            densities.from_normals(normal, -numbers)
            if key.endswith("normal")
            else densities.from_uniforms(settings_of(name), numbers)
        )
        np.testing.assert_allclose(1 - ours, theirs, rtol=1e-5, atol=1e-6, err_msg=name)


@pytest.mark.parametrize("shift", [1.0, 3.0])
def test_table_lookup_equals_diffusers_scripts(records: dict[str, Tensor], shift: float) -> None:
    u = records["quantiles"].numpy()
    sigma = flow.shift_sigma(torch.from_numpy(flow.round_to_table(1 - u)).float(), shift)
    torch.testing.assert_close(sigma, records[f"indexed.shift_{shift}.sigmas"], rtol=1e-6, atol=0)
    torch.testing.assert_close(sigma * 1000, records[f"indexed.shift_{shift}.timesteps"], rtol=1e-6, atol=0)


@pytest.mark.parametrize(
    ("settings", "mean"),
    [
        ({"density": "uniform"}, 0.5), ({"density": "mode", "mode_scale": 0.8}, 0.5),
        ({"density": "logit-normal", "mean": 1.0}, 0.6974), ({"density": "log-snr", "mean": -2.0, "std": 2.0}, 0.6974),
        ({"density": "beta", "beta": (3.0, 1.0)}, 0.75), ({"density": "beta", "beta": (0.5, 0.5)}, 0.5),
        ({"density": "sigmoid", "sigmoid_scale": 2.0}, 0.5),
    ],
)  # fmt: skip
def test_samples_follow_their_density(settings: dict[str, Any], mean: float) -> None:
    chosen = FlowSettings(**settings)
    addresses = draws.keys(3, "timestep", np.arange(20_000))
    drawn = densities.draw(chosen, addresses)
    assert drawn.min() >= 0
    assert drawn.max() <= 1
    assert drawn.mean() == pytest.approx(mean, abs=0.01)
    if chosen.density != "mode":
        shares = np.linspace(0.05, 0.95, 19)
        np.testing.assert_allclose(np.quantile(drawn, shares), at_quantiles(chosen, shares), atol=0.015)
    # a draw is a function of its address alone
    assert np.array_equal(densities.draw(chosen, addresses[7:9]), drawn[7:9])


def test_beta_quantiles_equal_scipy() -> None:
    stats = pytest.importorskip("scipy.stats")
    shares = np.linspace(0.001, 0.999, 101)
    for alpha, beta in ((0.5, 0.5), (2.0, 2.0), (1.5, 1.0), (0.6, 3.0), (8.0, 2.0)):
        ours = at_quantiles(FlowSettings(density="beta", beta=(alpha, beta)), shares)
        np.testing.assert_allclose(ours, stats.beta.ppf(shares, alpha, beta), atol=2e-4)
