"""Learned variance: properties of the terms, their weights, unsupported settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from mezzotint.diffusion.learned_variance import Posterior, discretized_log_likelihood, gaussian_kl
from mezzotint.diffusion.objective import Objective, StepDraws
from mezzotint.diffusion.prediction import add_noise
from mezzotint.diffusion.schedule import Schedule
from mezzotint.errors import RecipeError
from mezzotint.settings.sections.objective import ObjectiveSettings
from mezzotint.stages import Noised

SCHEDULE = Schedule.linear()
POSTERIOR = Posterior.of(SCHEDULE)
SHAPE = (4, 4, 3, 6, 5)
RECORD = Path(__file__).parents[1] / "parity" / "data" / "open-sora-plan" / "diffusion_losses.safetensors"


@pytest.fixture(scope="module")
def record() -> dict[str, Tensor]:
    return load_file(RECORD)


def objective(prediction: str = "epsilon", **settings: Any) -> Objective:
    return Objective(ObjectiveSettings(**settings), SCHEDULE, prediction)


def drawn(seed: int, *shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def noised(record: dict[str, Tensor], mask: str = "ones") -> Noised:
    x_t, t = record[f"out.{mask}.x_t"], record["in.t"]
    return Noised(record["in.x_start"], record["in.noise"], x_t, x_t, t, t.float())


@pytest.mark.parametrize("mask", ["ones", "partial"])
def test_loss_per_sample_equals_open_sora_plan(mask: str, record: dict[str, Tensor]) -> None:
    latents_mask = record["in.attention_mask"] if mask == "partial" else None
    loss = objective().loss(record["in.model_output"], noised(record, mask), torch.ones(4), latents_mask)
    torch.testing.assert_close(loss.per_sample, record[f"out.{mask}.loss"], rtol=1e-6, atol=0)
    assert torch.equal(loss.weight, torch.ones(4))
    mean_part = record["in.model_output"].chunk(2, dim=1)[0]
    plain = objective().loss(mean_part, noised(record, mask), torch.ones(4), latents_mask)
    torch.testing.assert_close(plain.per_sample, record[f"out.{mask}.mse"], rtol=1e-6, atol=0)


def test_min_snr_weights_only_the_squared_error(record: dict[str, Tensor]) -> None:
    o = objective(min_snr_gamma=5.0)
    loss = o.loss(record["in.model_output"], noised(record), torch.full((4,), 2.0))
    snr = o.schedule.snr[record["in.t"]]
    share = snr.clamp(max=5.0) / snr
    expected = share * record["out.ones.mse"] + record["out.ones.vb"]
    torch.testing.assert_close(loss.per_sample, expected, rtol=1e-5, atol=0)
    assert torch.equal(loss.weight, torch.full((4,), 2.0))


def test_variational_term_trains_only_the_variance(record: dict[str, Tensor]) -> None:
    said = record["in.model_output"].clone().requires_grad_()
    objective().loss(said, noised(record), torch.ones(4)).total.backward()
    eps_grad, v_grad = said.grad.chunk(2, dim=1)  # type: ignore[union-attr]
    eps = record["in.model_output"].chunk(2, dim=1)[0]
    expected = 2 * (eps - record["in.noise"]) / eps[0].numel()
    torch.testing.assert_close(eps_grad, expected, rtol=1e-5, atol=1e-8)
    assert v_grad.abs().max() > 0


def test_equivalent_velocity_has_the_same_variational_term(record: dict[str, Tensor]) -> None:
    """At timesteps where both are well conditioned."""
    at = noised(record)
    eps, v = record["in.model_output"].chunk(2, dim=1)
    keep = torch.tensor([1, 2])
    parts = (getattr(at, name) for name in Noised.__slots__)
    some = Noised(*(part if part is None else part[keep] for part in parts))
    alpha_bar = SCHEDULE.alpha_bar[some.model_t].view(-1, 1, 1, 1, 1)
    x_0 = (some.x_t - (1 - alpha_bar).sqrt() * eps[keep]) / alpha_bar.sqrt()
    velocity = alpha_bar.sqrt() * eps[keep] - (1 - alpha_bar).sqrt() * x_0
    with_variance = objective("v").loss(torch.cat([velocity, v[keep]], dim=1), some, torch.ones(2)).per_sample
    plain = objective("v").loss(velocity, some, torch.ones(2)).per_sample
    torch.testing.assert_close(with_variance - plain, record["out.ones.vb"][keep], rtol=1e-3, atol=1e-6)


def test_noise_offset_is_part_of_the_target() -> None:
    o = objective(noise_offset=0.5)
    drawn = StepDraws.at(1, 0, torch.arange(2).numpy(), "cpu")
    x = torch.zeros(2, 4, 3, 2, 2)
    there = o.noise_at(x, drawn, torch.tensor([10, 900]))
    perfect = torch.cat([there.noise, torch.zeros_like(there.noise)], dim=1)
    loss = o.loss(perfect, there, torch.ones(2))
    bits = loss.per_sample
    plain = o.loss(there.noise, there, torch.ones(2))
    assert torch.equal(plain.per_sample, torch.zeros(2))
    assert bits[0] > 1e-4  # v = 0 is not the true variance
    assert (bits < 0.01).all()


def test_unsupported_learned_variance_settings_are_refused(record: dict[str, Tensor]) -> None:
    with pytest.raises(AssertionError, match="pure noise"):
        Posterior.of(SCHEDULE.rescale_to_zero_terminal_snr())
    with pytest.raises(RecipeError, match="ends in pure noise") as met:
        objective("v", zero_terminal_snr=True).loss(record["in.model_output"], noised(record), torch.ones(4))
    assert met.value.code == "E1465"
    mean_part = record["in.model_output"].chunk(2, dim=1)[0]
    objective("v", zero_terminal_snr=True).loss(mean_part, noised(record), torch.ones(4))


def test_mask_of_ones_equals_no_mask(record: dict[str, Tensor]) -> None:
    inputs = record["in.model_output"], noised(record), torch.ones(4)
    for shape in ((4, 3, 6, 6), (4, 1, 3, 6, 6)):
        masked = objective().loss(*inputs, torch.ones(shape)).per_sample
        assert torch.equal(masked, objective().loss(*inputs).per_sample)


def test_variance_tables_equal_open_sora_plan_in_float32(record: dict[str, Tensor]) -> None:
    for ours, name in (
        (POSTERIOR.log_min, "posterior_log_variance_clipped"),
        (POSTERIOR.share_x_0, "posterior_mean_coef1"),
        (POSTERIOR.share_x_t, "posterior_mean_coef2"),
    ):
        torch.testing.assert_close(ours.double(), record[f"table.{name}"], rtol=3e-7, atol=0)
    torch.testing.assert_close(POSTERIOR.log_max.double(), record["table.betas"].log(), rtol=3e-7, atol=0)


def test_true_noise_and_variance_give_zero_kl() -> None:
    t = torch.tensor([1, 10, 100, 300])  # later the bounds are one to rounding
    x_0, eps = drawn(1, *SHAPE), drawn(2, *SHAPE)
    x_t = add_noise(x_0, eps, SCHEDULE.alpha_bar[t])
    torch.testing.assert_close(POSTERIOR.x_0(eps, x_t, t), x_0, rtol=0, atol=1e-4)
    bits = POSTERIOR.variational_bits(x_0, torch.full_like(x_0, -1.0), x_0, x_t, t)
    assert bits.abs().max() < 1e-6
    worse = POSTERIOR.variational_bits(x_0, torch.zeros_like(x_0), x_0, x_t, t)
    assert (worse.flatten(1).mean(1) > 1e-9).all()


def test_v_interpolates_the_variance_between_bounds() -> None:
    t = torch.tensor([1, 10, 300, 999])
    at = [POSTERIOR.log_variance(torch.full(SHAPE, v), t)[:, 0, 0, 0, 0] for v in (-1.0, 0.0, 1.0)]
    torch.testing.assert_close(at[0], POSTERIOR.log_min[t])
    torch.testing.assert_close(at[1], (POSTERIOR.log_min[t] + POSTERIOR.log_max[t]) / 2)
    torch.testing.assert_close(at[2], SCHEDULE.betas()[t].log())
    assert POSTERIOR.log_min[0] == POSTERIOR.log_min[1]


def test_bin_probabilities_sum_to_one() -> None:
    values = torch.linspace(-1, 1, 256)
    for mean, log_deviation in ((0.0, -1.0), (0.7, -2.0), (-1.2, -3.0)):
        log = discretized_log_likelihood(values, torch.tensor(mean), torch.tensor(log_deviation))
        assert log.exp().sum().item() == pytest.approx(1, abs=1e-4)
    # log 1e-12, where the distribution is not
    far = discretized_log_likelihood(values[:1], torch.tensor(5.0), torch.tensor(-5.0))
    assert far.item() == pytest.approx(-27.631, abs=1e-3)


def test_kl_of_normals_equals_torch() -> None:
    a, b = (torch.distributions.Normal(drawn(s, 50), drawn(s + 1, 50).exp()) for s in (5, 7))
    ours = gaussian_kl(a.mean, 2 * a.stddev.log(), b.mean, 2 * b.stddev.log())
    torch.testing.assert_close(ours, torch.distributions.kl_divergence(a, b), rtol=1e-4, atol=1e-5)


def test_half_precision_losses_are_computed_in_float32(record: dict[str, Tensor]) -> None:
    half = record["in.model_output"].bfloat16()
    losses = [objective().loss(said, noised(record), torch.ones(4)).per_sample for said in (half, half.float())]
    assert losses[0].dtype == torch.float32
    assert torch.equal(*losses)


def test_no_value_is_read_back_from_the_device() -> None:
    moved = POSTERIOR.to("meta")  # reading a number there is an error
    x = torch.empty(SHAPE, device="meta")
    t = torch.empty(4, dtype=torch.int64, device="meta")
    assert moved.variational_bits(moved.x_0(x, x, t), x, x, x, t).shape == SHAPE
    assert POSTERIOR.log_max.device.type == "cpu"
