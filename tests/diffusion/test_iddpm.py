"""Learned-range variance: what must hold of the terms, and the step back against diffusers' scheduler."""

from __future__ import annotations

import pytest
import torch
from diffusers import DDPMScheduler
from torch import Tensor

from mezzotint.diffusion import iddpm
from mezzotint.diffusion.prediction import add_noise
from mezzotint.diffusion.schedule import Schedule

SCHEDULE = Schedule.linear()
POSTERIOR = iddpm.Posterior.of(SCHEDULE)
SHAPE = (4, 4, 3, 6, 5)


def drawn(seed: int, *shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def noised(t: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    x_0, eps = drawn(1, *SHAPE), drawn(2, *SHAPE)
    return x_0, eps, add_noise(x_0, eps, SCHEDULE.alpha_bar[t])


def test_the_true_noise_means_the_true_latents() -> None:
    t = torch.tensor([0, 10, 300, 600])
    x_0, eps, x_t = noised(t)
    torch.testing.assert_close(POSTERIOR.x_0(eps, x_t, t), x_0, rtol=0, atol=1e-4)


def test_nothing_is_left_to_say_when_mean_and_variance_are_true() -> None:
    t = torch.tensor([1, 10, 100, 300])  # later the bounds are one to rounding
    x_0, _, x_t = noised(t)
    bits = iddpm.variational_bits(x_0, torch.full_like(x_0, -1.0), x_0, x_t, t, posterior=POSTERIOR)
    assert bits.abs().max() < 1e-6
    worse = iddpm.variational_bits(x_0, torch.zeros_like(x_0), x_0, x_t, t, posterior=POSTERIOR)
    assert (worse.flatten(1).mean(1) > 1e-9).all()


def test_v_places_the_variance_between_its_bounds() -> None:
    t = torch.tensor([1, 10, 300, 999])
    at = [POSTERIOR.log_variance(torch.full(SHAPE, v), t)[:, 0, 0, 0, 0] for v in (-1.0, 0.0, 1.0)]
    torch.testing.assert_close(at[0], POSTERIOR.log_least[t])
    torch.testing.assert_close(at[1], (POSTERIOR.log_least[t] + POSTERIOR.log_most[t]) / 2)
    torch.testing.assert_close(at[2], SCHEDULE.betas()[t].log())
    assert POSTERIOR.log_least[0] == POSTERIOR.log_least[1]


def test_the_noise_learns_from_the_squared_error_alone_and_v_from_the_variational_term_alone() -> None:
    t = torch.tensor([0, 1, 300, 999])
    x_0, eps, x_t = noised(t)
    for term, silent in (("mse", slice(4, 8)), ("variational", slice(0, 4))):
        predicted = drawn(3, 4, 8, 3, 6, 5).requires_grad_()
        getattr(iddpm.losses(predicted, eps, x_0, x_t, t, posterior=POSTERIOR), term).sum().backward()
        assert predicted.grad is not None
        assert predicted.grad[:, silent].abs().max() == 0
        assert (predicted.grad.abs().flatten(1).sum(1) > 0).all()


def test_bins_of_a_normal_distribution_share_all_of_it() -> None:
    values = torch.linspace(-1, 1, 256)
    for mean, log_deviation in ((0.0, -1.0), (0.7, -2.0), (-1.2, -3.0)):
        log = iddpm.discretized_log_likelihood(values, torch.tensor(mean), torch.tensor(log_deviation))
        assert log.exp().sum().item() == pytest.approx(1, abs=1e-4)
    # log 1e-12, where the distribution is not
    far = iddpm.discretized_log_likelihood(values[:1], torch.tensor(5.0), torch.tensor(-5.0))
    assert far.item() == pytest.approx(-27.631, abs=1e-3)


def test_kl_of_normals_is_torchs() -> None:
    a, b = (torch.distributions.Normal(drawn(s, 50), drawn(s + 1, 50).exp()) for s in (5, 7))
    found = iddpm.gaussian_kl(a.mean, 2 * a.stddev.log(), b.mean, 2 * b.stddev.log())
    torch.testing.assert_close(found, torch.distributions.kl_divergence(a, b), rtol=1e-4, atol=1e-5)


def test_half_precision_predictions_are_judged_in_float32() -> None:
    t = torch.tensor([0, 1, 300, 999])
    x_0, eps, x_t = noised(t)
    predicted = drawn(3, 4, 8, 3, 6, 5).bfloat16()
    half = iddpm.losses(predicted, eps, x_0, x_t, t, posterior=POSTERIOR)
    whole = iddpm.losses(predicted.float(), eps, x_0, x_t, t, posterior=POSTERIOR)
    assert half.variational.dtype == torch.float32
    assert torch.equal(half.mse, whole.mse)
    assert torch.equal(half.variational, whole.variational)


@pytest.mark.parametrize("timesteps", [None, (0, 5, 130, 131, 700, 999)])
def test_a_step_back_is_diffusers_with_learned_range(timesteps: tuple[int, ...] | None) -> None:
    theirs = DDPMScheduler(variance_type="learned_range", clip_sample=False)
    if timesteps is not None:
        theirs.set_timesteps(timesteps=list(reversed(timesteps)))
    posterior = iddpm.Posterior.of(SCHEDULE, timesteps)
    predicted, x_t = drawn(3, *(1, 8, 3, 6, 5)), drawn(4, *(1, 4, 3, 6, 5))
    for i, t in enumerate(timesteps or (0, 1, 500, 999)):
        noise = drawn(9, 1, 4, 3, 6, 5)
        index = torch.tensor([i if timesteps is not None else t])
        found = iddpm.step_back(predicted, x_t, index, noise, posterior=posterior)
        wanted = theirs.step(predicted, t, x_t, generator=torch.Generator().manual_seed(9)).prev_sample
        assert found.abs().max() > 1
        torch.testing.assert_close(found, wanted, rtol=1e-3, atol=1e-4)


def test_all_timesteps_chosen_are_the_schedule_itself() -> None:
    chosen = iddpm.Posterior.of(SCHEDULE, range(1000))
    for name in ("from_x_t", "from_eps", "share_x_0", "share_x_t", "log_least", "log_most"):
        torch.testing.assert_close(getattr(chosen, name), getattr(POSTERIOR, name), rtol=1e-6, atol=0)


def test_a_schedule_that_ends_in_pure_noise_has_no_way_back() -> None:
    with pytest.raises(AssertionError, match="pure noise"):
        iddpm.Posterior.of(SCHEDULE.rescaled_to_zero_terminal_snr())


def test_nothing_is_read_back_from_the_device() -> None:
    moved = POSTERIOR.to("meta")  # reading a number there is an error
    x = torch.empty(SHAPE, device="meta")
    t = torch.empty(4, dtype=torch.int64, device="meta")
    predicted = torch.empty(4, 8, 3, 6, 5, device="meta")
    assert iddpm.losses(predicted, x, x, x, t, posterior=moved, mask=x[:, 0]).mse.shape == (4,)
    assert iddpm.step_back(predicted, x, t, x, posterior=moved).shape == SHAPE
    assert POSTERIOR.log_most.device.type == "cpu"
