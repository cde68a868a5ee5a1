"""Scaling of networks parameterized by σ; recorded values are in tests/parity."""

from __future__ import annotations

import pytest
import torch

from mezzotint.diffusion import preconditioning
from mezzotint.diffusion.preconditioning import ScalingName
from mezzotint.diffusion.schedule import Schedule

SIGMA = torch.tensor([0.01, 0.5, 1.0, 80.0])


@pytest.mark.parametrize("kind", ["epsilon", "v", "edm", "v-edm"])
def test_scaled_input_has_unit_deviation_at_every_level(kind: ScalingName) -> None:
    deviation = 0.5 if kind == "edm" else 1.0
    factors = preconditioning.compute_scaling(kind, SIGMA)
    torch.testing.assert_close(factors.c_in * (SIGMA**2 + deviation**2).sqrt(), torch.ones(4))
    assert (kind.endswith("edm")) == bool(torch.equal(factors.c_noise, 0.25 * SIGMA.log()))


def test_exact_noise_prediction_recovers_the_latents() -> None:
    x_0, eps = torch.full((4, 1), 0.3), torch.full((4, 1), -2.0)
    x_sigma = x_0 + SIGMA[:, None] * eps
    factors = preconditioning.compute_scaling("epsilon-unscaled", SIGMA)
    assert torch.equal(factors.c_in, torch.ones(4))
    torch.testing.assert_close(preconditioning.denoise(eps, x_sigma, factors), x_0, rtol=1e-4, atol=2e-5)


def test_sampling_sigmas_decrease_to_zero() -> None:
    table = Schedule.scaled_linear().sigma
    for sigmas in (preconditioning.karras_sigmas(7), preconditioning.spread_sigmas(table, 7)):
        assert sigmas.shape == (8,)
        assert (sigmas.diff() < 0).all()
        assert sigmas[-1] == 0
    assert preconditioning.spread_sigmas(table, 7)[0] == table[-1]
