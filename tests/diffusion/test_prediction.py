from __future__ import annotations

import pytest
import torch
from diffusers import DDPMScheduler
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from mezzotint.diffusion import noise, prediction
from mezzotint.diffusion.schedule import Schedule


def latents(seed: int, shape: tuple[int, ...] = (4, 3, 3)) -> tuple[Tensor, Tensor]:
    keys = torch.arange(3) + 10 * seed
    return noise.normal(keys, shape), noise.normal(keys + 5, shape)


@settings(max_examples=40, deadline=None)
@given(
    kind=st.sampled_from(prediction.PREDICTIONS),
    alpha_bar=st.lists(st.floats(0.01, 0.99), min_size=3, max_size=3),
    seed=st.integers(0, 1000),
    video=st.booleans(),
)
def test_conversions_invert(kind: str, alpha_bar: list[float], seed: int, video: bool) -> None:
    x_0, eps = latents(seed, (4, 2, 3, 3) if video else (4, 3, 3))
    a = torch.tensor(alpha_bar)
    x_t = prediction.add_noise(x_0, eps, a)
    said = prediction.target(kind, x_0, eps, a)
    torch.testing.assert_close(prediction.to_x_0(kind, said, x_t, a), x_0, rtol=1e-4, atol=2e-5)


def test_noising_and_velocity_equal_diffusers() -> None:
    x_0, eps = latents(1)
    timesteps = torch.tensor([0, 400, 999])
    config = {"beta_schedule": "scaled_linear", "beta_start": 0.00085, "beta_end": 0.012}
    theirs = DDPMScheduler(**config)
    a = Schedule.from_config(config).alpha_bar[timesteps]
    torch.testing.assert_close(prediction.add_noise(x_0, eps, a), theirs.add_noise(x_0, eps, timesteps))
    torch.testing.assert_close(prediction.velocity(x_0, eps, a), theirs.get_velocity(x_0, eps, timesteps))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_coefficients_are_float32_for_any_latents(dtype: torch.dtype) -> None:
    x_0, eps = torch.zeros(1, 4, 2, 2, dtype=dtype), torch.ones(1, 4, 2, 2, dtype=dtype)
    a = Schedule.scaled_linear().alpha_bar[:1]
    noised = prediction.add_noise(x_0, eps, a)
    assert noised.dtype == dtype
    # in bf16 the table itself would say 0 here
    torch.testing.assert_close(noised.float(), torch.full_like(noised, 0.029155).float(), rtol=4e-3, atol=0)
    assert prediction.velocity(x_0, eps, a).dtype == dtype


def test_pure_noise_has_velocity_minus_x0() -> None:
    x_0, eps = latents(2)
    nothing_left = torch.zeros(3)
    assert torch.equal(prediction.add_noise(x_0, eps, nothing_left), eps)
    assert torch.equal(prediction.velocity(x_0, eps, nothing_left), -x_0)
    assert torch.equal(prediction.to_x_0("v", -x_0, eps, nothing_left), x_0)


def test_unknown_prediction_is_refused_by_name() -> None:
    x_0, eps = latents(3)
    a = torch.full((3,), 0.5)
    for convert in (prediction.target, prediction.to_x_0):
        with pytest.raises(ValueError, match="flow"):
            convert("flow", x_0, eps, a)
