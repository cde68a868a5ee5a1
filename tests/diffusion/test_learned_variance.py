"""The objective of a denoiser that learns its variance: both terms, what weighs them, what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from mezzotint.diffusion import iddpm
from mezzotint.diffusion.objective import Objective, StepDraws
from mezzotint.diffusion.schedule import Schedule
from mezzotint.errors import RecipeError
from mezzotint.recipe.sections.objective import ObjectiveSettings
from mezzotint.stages import Noised

RECORD = Path(__file__).parents[1] / "parity" / "data" / "open-sora-plan" / "diffusion_losses.safetensors"


@pytest.fixture(scope="module")
def record() -> dict[str, Tensor]:
    return load_file(RECORD)


def objective(prediction: str = "epsilon", **settings: Any) -> Objective:
    return Objective(ObjectiveSettings(**settings), Schedule.linear(), prediction)


def noised(record: dict[str, Tensor], mask: str = "ones") -> Noised:
    x_t, t = record[f"out.{mask}.x_t"], record["in.t"]
    return Noised(record["in.x_start"], record["in.noise"], x_t, x_t, t, t.float())


@pytest.mark.parametrize("mask", ["ones", "partial"])
def test_the_loss_of_each_sample_is_open_sora_plans(mask: str, record: dict[str, Tensor]) -> None:
    given = record["in.attention_mask"] if mask == "partial" else None
    found = objective().loss(record["in.model_output"], noised(record, mask), torch.ones(4), given)
    torch.testing.assert_close(found.per_sample, record[f"out.{mask}.loss"], rtol=1e-6, atol=0)
    assert torch.equal(found.weight, torch.ones(4))
    plain = objective(variance="none").loss(record["in.model_output"], noised(record, mask), torch.ones(4), given)
    torch.testing.assert_close(plain.per_sample, record[f"out.{mask}.mse"], rtol=1e-6, atol=0)


def test_min_snr_weighs_the_squared_error_alone(record: dict[str, Tensor]) -> None:
    o = objective(min_snr_gamma=5.0)
    found = o.loss(record["in.model_output"], noised(record), torch.full((4,), 2.0))
    snr = o.schedule.snr[record["in.t"]]
    share = snr.clamp(max=5.0) / snr
    wanted = share * record["out.ones.mse"] + record["out.ones.vb"]
    torch.testing.assert_close(found.per_sample, wanted, rtol=1e-5, atol=0)
    assert torch.equal(found.weight, torch.full((4,), 2.0))


def test_the_variational_term_teaches_the_variance_alone(record: dict[str, Tensor]) -> None:
    said = record["in.model_output"].clone().requires_grad_()
    objective().loss(said, noised(record), torch.ones(4)).total.backward()
    eps_grad, v_grad = said.grad.chunk(2, dim=1)  # type: ignore[union-attr]
    eps = record["in.model_output"].chunk(2, dim=1)[0]
    wanted = 2 * (eps - record["in.noise"]) / eps[0].numel()
    torch.testing.assert_close(eps_grad, wanted, rtol=1e-5, atol=1e-8)
    assert v_grad.abs().max() > 0


def test_a_velocity_that_means_the_same_has_the_same_term(record: dict[str, Tensor]) -> None:
    """At timesteps where both are well conditioned."""
    at = noised(record)
    eps, v = iddpm.split(record["in.model_output"])
    keep = torch.tensor([1, 2])
    some = Noised(*(getattr(at, name)[keep] for name in Noised.__slots__))
    alpha_bar = Schedule.linear().alpha_bar[some.model_t].view(-1, 1, 1, 1, 1)
    x_0 = (some.x_t - (1 - alpha_bar).sqrt() * eps[keep]) / alpha_bar.sqrt()
    velocity = alpha_bar.sqrt() * eps[keep] - (1 - alpha_bar).sqrt() * x_0
    found = objective("v").loss(torch.cat([velocity, v[keep]], dim=1), some, torch.ones(2)).per_sample
    plain = objective("v", variance="none").loss(torch.cat([velocity, v[keep]], dim=1), some, torch.ones(2)).per_sample
    torch.testing.assert_close(found - plain, record["out.ones.vb"][keep], rtol=1e-3, atol=1e-6)


def test_noise_offset_belongs_to_what_is_learnt() -> None:
    o = objective(noise_offset=0.5)
    drawn = StepDraws.at(1, 0, torch.arange(2).numpy(), "cpu")
    x = torch.zeros(2, 4, 3, 2, 2)
    there = o.noise_at(x, drawn, torch.tensor([10, 900]))
    perfect = torch.cat([there.noise, torch.zeros_like(there.noise)], dim=1)
    found = o.loss(perfect, there, torch.ones(2))
    bits = found.per_sample
    plain = objective(variance="none", noise_offset=0.5).loss(perfect, there, torch.ones(2))
    assert torch.equal(plain.per_sample, torch.zeros(2))
    assert bits[0] > 1e-4  # v = 0 is not the true variance
    assert (bits < 0.01).all()


def test_what_cannot_be_learnt_is_refused(record: dict[str, Tensor]) -> None:
    half = record["in.model_output"].chunk(2, dim=1)[0]
    with pytest.raises(RecipeError, match="none for a variance") as met:
        objective(variance="learned-range").loss(half, noised(record), torch.ones(4))
    assert met.value.code == "E1465"
    with pytest.raises(RecipeError, match="ends in pure noise"):
        objective("v", zero_terminal_snr=True).loss(record["in.model_output"], noised(record), torch.ones(4))
    objective("v", zero_terminal_snr=True, variance="none").loss(
        record["in.model_output"], noised(record), torch.ones(4)
    )
