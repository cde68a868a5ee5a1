"""Denoisers parametrized by σ, recorded from Stability's generative-models: tables, factors, weights."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file
from torch import Tensor

from mezzotint.diffusion import preconditioning, weighting
from mezzotint.diffusion.preconditioning import ScalingName
from mezzotint.diffusion.prediction import add_noise, velocity
from mezzotint.diffusion.schedule import Schedule
from support.rounding import within

RECORD = load_file(Path(__file__).parent / "data" / "mindone-sdxl" / "scalings.safetensors")
SIGMAS = RECORD["probe_sigmas"]
TABLE = Schedule.scaled_linear().sigma


# a table of float32 against one of float64: σ² = (1 − ᾱ)/ᾱ begins with 1 − ᾱ = 0.00085, 1/1176 of the numbers that were
# rounded; the root halves that
TABLES = 600
# σ to the power ρ = 7 of a sum: seven times its roundings, and a logarithm and an exponential of the processor's own
POWERS = 64
# quotients, squares and roots of one number
FEW = 8


def same(ours: Tensor, name: str, *, roundings: float = FEW) -> None:
    within(ours, RECORD[name], roundings=roundings, of="each", name=name)


@pytest.mark.parametrize(
    ("name", "kind", "sigma_data"),
    [("eps", "epsilon", 0.5), ("v", "v", 0.5), ("v_edm_cnoise", "v-edm", 0.5), ("edm0.5", "edm", 0.5),
     ("edm1.0", "edm", 1.0)],
)  # fmt: skip
@pytest.mark.parametrize("factor", ["c_skip", "c_out", "c_in", "c_noise"])
def test_preconditioning_factors_equal_the_record(name: str, kind: ScalingName, sigma_data: float, factor: str) -> None:
    same(
        getattr(preconditioning.compute_scaling(kind, SIGMAS, sigma_data=sigma_data), factor),
        f"scaling.{name}.{factor}",
    )


@pytest.mark.parametrize(("name", "kind"), [("unit", "unit"), ("eps", "epsilon"), ("v", "v"), ("edm0.5", "edm")])
def test_loss_weights_equal_the_record(name: str, kind: str) -> None:
    same(weighting.x_0_weight(kind, SIGMAS**-2.0), f"weighting.{name}")


def test_sigma_tables_equal_the_record() -> None:
    # cumulative products in float32 here, in float64 there
    same(TABLE, "legacy_ddpm_1000_ascending", roundings=TABLES)
    same(TABLE, "discrete_denoiser_sigmas", roundings=TABLES)
    for steps in (1, 4, 20, 30, 40, 50):
        same(preconditioning.spread_sigmas(TABLE, steps), f"legacy_ddpm_{steps}_with_zero", roundings=TABLES)
    for steps in (4, 20, 40):
        same(preconditioning.karras_sigmas(steps), f"edm_{steps}_with_zero", roundings=POWERS)
    custom = preconditioning.karras_sigmas(10, sigma_min=0.03, sigma_max=14.61, rho=3)
    same(custom, "edm_custom_10_smin0.03_smax14.61_rho3", roundings=POWERS)


def test_sigma_between_table_entries_maps_to_the_nearest() -> None:
    indices = preconditioning.find_nearest(TABLE, SIGMAS)
    assert torch.equal(indices, RECORD["probe_sigma_to_idx"])
    same(TABLE[indices], "probe_quantized_sigma", roundings=TABLES)
    assert torch.equal(preconditioning.find_nearest(TABLE, TABLE), torch.arange(1000))


def test_continuous_sigmas_are_log_normal() -> None:
    same(preconditioning.log_normal(RECORD["edm_sampling_rand"]), "edm_sampling_sigma", roundings=POWERS)


@given(st.integers(0, 999), st.integers(0, 2**32 - 1))
def test_discrete_scalings_equal_continuous_ones_on_a_table(t: int, seed: int) -> None:
    """A network that predicts ε or v exactly returns x_0, has x_t as input, and its plain error as weighted error."""
    generator = torch.Generator().manual_seed(seed)
    x_0, eps, wrong = (torch.randn(1, 4, 2, 2, generator=generator, dtype=torch.float64) for _ in range(3))
    alpha_bar = Schedule.scaled_linear().alpha_bar[t : t + 1]
    sigma = TABLE[t : t + 1].double()
    x_sigma = x_0 + sigma * eps
    output: dict[ScalingName, Tensor] = {"epsilon": eps, "v": velocity(x_0, eps, alpha_bar)}
    for kind, right in output.items():
        factors = preconditioning.compute_scaling(kind, sigma)
        torch.testing.assert_close(factors.c_in * x_sigma, add_noise(x_0, eps, alpha_bar), rtol=1e-4, atol=1e-4)
        denoised = preconditioning.denoise(right, x_sigma, factors)
        torch.testing.assert_close(denoised.double(), x_0, rtol=1e-3, atol=1e-3)
        error = (preconditioning.denoise(right + wrong, x_sigma, factors) - denoised).square()
        weighted = weighting.x_0_weight(kind, sigma**-2.0) * error
        torch.testing.assert_close(weighted.double(), wrong.square(), rtol=2e-2, atol=2e-3)


def test_unknown_kinds_and_too_many_steps_are_refused() -> None:
    with pytest.raises(ValueError, match="unknown scaling"):
        preconditioning.compute_scaling("eps", SIGMAS)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="unknown prediction"):
        weighting.x_0_weight("eps", SIGMAS)
    for steps in (0, 1001):
        with pytest.raises(ValueError, match="from 1 to 1000"):
            preconditioning.spread_sigmas(TABLE, steps)
    assert preconditioning.spread_sigmas(TABLE, 1000).tolist() == [*TABLE.flip(0).tolist(), 0.0]
    once = preconditioning.compute_scaling("epsilon-unscaled", SIGMAS)
    assert torch.equal(once.c_in, torch.ones_like(SIGMAS))
    assert torch.equal(once.c_out, -SIGMAS)
