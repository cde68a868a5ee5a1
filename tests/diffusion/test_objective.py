from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from mezzotint import draws
from mezzotint.diffusion import noise, timesteps, weighting
from mezzotint.diffusion.objective import Objective, StepDraws
from mezzotint.diffusion.schedule import Schedule
from mezzotint.errors import RecipeError
from mezzotint.settings.sections.objective import ObjectiveSettings

SHAPE = (4, 6, 5)


def objective(kind: str = "epsilon", schedule: Schedule | None = None, **settings: Any) -> Objective:
    return Objective(ObjectiveSettings(**settings), schedule or Schedule.scaled_linear(), kind)


def step_draws(positions: range, step: int = 3, seed: int = 7) -> StepDraws:
    return StepDraws.at(seed, step, np.array(positions, dtype=np.int64), "cpu")


def clean(positions: range, shape: tuple[int, ...] = SHAPE) -> Tensor:
    return noise.normal(torch.tensor(list(positions), dtype=torch.int64) + 1000, shape)


def test_draws_are_addressed_by_seed_step_and_position() -> None:
    drawn = step_draws(range(2, 5))
    assert drawn.timestep.tolist() == [draws.key(7, "timestep", 3, p) for p in (2, 3, 4)]
    for purpose, keys in (("noise", drawn.noise), ("offset", drawn.offset)):
        assert keys.numpy().view(np.uint64).tolist() == [draws.key(7, purpose, 3, p) for p in (2, 3, 4)]
    everything = {*drawn.noise.tolist(), *drawn.offset.tolist(), *step_draws(range(2, 5), step=4).noise.tolist()}
    assert len(everything) == 9


def test_batch_and_its_splits_draw_the_same() -> None:
    both = objective(noise_offset=0.1)
    whole = both.noise(clean(range(6)), step_draws(range(6)))
    parts = [both.noise(clean(part), step_draws(part)) for part in (range(1), range(1, 4), range(4, 6))]
    for field in ("x_0", "noise", "x_t", "model_input", "model_t", "level"):
        assert torch.equal(getattr(whole, field), torch.cat([getattr(part, field) for part in parts])), field


def test_random_strengths_are_drawn_by_step_and_equal_for_its_samples() -> None:
    settings = {"noise_offset": 0.5, "input_perturbation": 0.25}
    fixed = objective(**settings)
    random = objective(**settings, noise_offset_random_strength=True, input_perturbation_random_strength=True)
    plain = objective(input_perturbation=0.25)
    shares = []
    for step in (3, 4):
        drawn, at = step_draws(range(3), step=step), torch.tensor([10, 500, 900])
        whole, full, none = (one.noise_at(clean(range(3)), drawn, at) for one in (random, fixed, plain))
        share = draws.uniform(draws.key(7, "offset-strength", step))
        torch.testing.assert_close(whole.noise - none.noise, share * (full.noise - none.noise), rtol=0, atol=1e-6)
        other = draws.uniform(draws.key(7, "perturbation-strength", step))
        root = (1 - random.schedule.alpha_bar[at]).sqrt().view(3, 1, 1, 1)
        added = whole.x_t - random.schedule.alpha_bar[at].sqrt().view(3, 1, 1, 1) * whole.x_0 - root * whole.noise
        expected = root * other * 0.25 * noise.normal(drawn.perturbation, SHAPE)  # type: ignore[arg-type]
        torch.testing.assert_close(added, expected, rtol=0, atol=1e-5)
        part = random.noise_at(clean(range(1, 2)), step_draws(range(1, 2), step=step), at[1:2])
        assert torch.equal(part.x_t, whole.x_t[1:2]), "a split draws the same"
        shares += [share, other]
    assert len(set(shares)) == 4


@pytest.mark.parametrize("shape", [(4, 6, 5), (4, 3, 6, 5)])
def test_adaptive_offset_follows_the_mean_of_each_channel(shape: tuple[int, ...]) -> None:
    x_0, drawn, at = clean(range(3), shape) - 0.3, step_draws(range(3)), torch.tensor([10, 500, 900])
    for strength, scale in ((0.1, 0.5), (0.1, -1.0), (0.0, 0.5)):
        plain, adaptive = (
            objective(noise_offset=o, noise_offset_adaptive_scale=s).noise_at(x_0, drawn, at)
            for o, s in ((0.0, 0.0), (strength, scale))
        )
        deviation = (strength + scale * x_0.flatten(2).mean(2).abs()).clamp(min=0)
        expected = deviation * noise.normal(drawn.offset, (4,))
        shift = (adaptive.noise - plain.noise).flatten(2)
        torch.testing.assert_close(shift, expected.unsqueeze(2).expand_as(shift), rtol=0, atol=1e-6)


def test_noised_latents_are_the_forward_process() -> None:
    built = objective()
    x_0 = clean(range(3))
    noised = built.noise(x_0, step_draws(range(3)))
    a = built.schedule.alpha_bar[noised.model_t].view(3, 1, 1, 1)
    torch.testing.assert_close(noised.x_t, a.sqrt() * x_0 + (1 - a).sqrt() * noised.noise)
    assert noised.model_t.tolist() == timesteps.draw(step_draws(range(3)).timestep, 0, 1000).tolist()
    assert noised.level.dtype == torch.float32
    assert noised.level.tolist() == noised.model_t.tolist()
    assert noised.model_input is noised.x_t


def test_timesteps_stay_in_the_range() -> None:
    drawn = objective(timesteps=(200, 210)).noise(clean(range(200), (1, 1, 1)), step_draws(range(200))).model_t
    assert set(drawn.tolist()) == set(range(200, 210))


def test_short_schedule_is_used_fully_and_not_exceeded() -> None:
    short = Schedule.scaled_linear(num_timesteps=20)
    drawn = objective(schedule=short).noise(clean(range(400), (1, 1, 1)), step_draws(range(400))).model_t
    assert set(drawn.tolist()) == set(range(20))
    with pytest.raises(RecipeError, match=r"write \[5, 20\]") as caught:
        objective(schedule=short, timesteps=(5, 21))
    assert caught.value.code == "E1051"


@pytest.mark.parametrize("shape", [(4, 6, 5), (4, 3, 6, 5)])
def test_offset_noise_is_one_number_for_each_channel(shape: tuple[int, ...]) -> None:
    x_0, drawn = clean(range(3), shape), step_draws(range(3))
    at = torch.tensor([10, 500, 900])
    plain, offset = (objective(noise_offset=o).noise_at(x_0, drawn, at) for o in (0.0, 0.5))
    shift = (offset.noise - plain.noise).flatten(2)
    torch.testing.assert_close(shift, shift[:, :, :1].expand_as(shift), rtol=0, atol=1e-6)
    torch.testing.assert_close(shift[:, :, 0], 0.5 * noise.normal(drawn.offset, (4,)), rtol=0, atol=1e-6)
    assert torch.equal(objective(noise_offset=0.5).target(offset), offset.noise)


@pytest.mark.parametrize("kind", ["epsilon", "v", "x0"])
def test_predicting_the_target_has_zero_loss(kind: str) -> None:
    built = objective(kind)
    noised = built.noise(clean(range(3)), step_draws(range(3)))
    assert built.loss(built.target(noised), noised, torch.ones(3)).per_sample.tolist() == [0, 0, 0]
    wrong = built.loss(built.target(noised) + 0.5, noised, torch.ones(3))
    torch.testing.assert_close(wrong.per_sample, torch.full((3,), 0.25))


def test_huber_loss_is_linear_in_outliers() -> None:
    built = objective(loss="huber", huber_delta=0.1)
    noised = built.noise(clean(range(2)), step_draws(range(2)))
    small = built.loss(built.target(noised) + 0.05, noised, torch.ones(2))
    large = built.loss(built.target(noised) - 3.0, noised, torch.ones(2))
    torch.testing.assert_close(small.per_sample, torch.full((2,), 0.5 * 0.05**2), rtol=1e-4, atol=0)
    torch.testing.assert_close(large.per_sample, torch.full((2,), 0.1 * (3.0 - 0.05)), rtol=1e-5, atol=0)


@pytest.mark.parametrize("form", ["prediction", "x0", "ratio"])
def test_weight_is_sample_weight_times_timestep_weight(form: str) -> None:
    built = objective("v", min_snr_gamma=5.0, min_snr_form=form)
    at = torch.tensor([0, 300, 999])
    noised = built.noise_at(clean(range(3)), step_draws(range(3)), at)
    loss = built.loss(torch.zeros(3, *SHAPE), noised, torch.tensor([1.0, 2.0, 0.0]))
    expected = weighting.min_snr(built.schedule.snr, 5.0, "v", form)[at] * torch.tensor([1.0, 2.0, 0.0])
    assert torch.equal(loss.weight, expected)
    plain = objective("v").loss(torch.zeros(3, *SHAPE), noised, torch.ones(3))
    assert torch.equal(plain.weight, torch.ones(3))
    assert torch.equal(plain.per_sample, loss.per_sample)


def test_zero_terminal_snr_trains_on_pure_noise() -> None:
    built = objective("v", zero_terminal_snr=True)
    x_0 = clean(range(2))
    noised = built.noise_at(x_0, step_draws(range(2)), torch.tensor([999, 999]))
    assert built.schedule.zero_terminal
    assert torch.equal(noised.x_t, noised.noise)
    assert torch.equal(built.target(noised), -x_0)


def test_half_precision_inputs_are_computed_in_float32() -> None:
    built = objective("v")
    x_0 = clean(range(2)).bfloat16()
    noised = built.noise(x_0, step_draws(range(2)))
    assert (noised.x_t.dtype, noised.noise.dtype, built.target(noised).dtype) == (torch.float32,) * 3
    loss = built.loss(built.target(noised).half(), noised, torch.ones(2))
    assert loss.per_sample.dtype == torch.float32
    assert loss.per_sample.max() < 1e-6


def test_gradients_reach_the_prediction() -> None:
    built = objective(min_snr_gamma=5.0)
    noised = built.noise(clean(range(2)), step_draws(range(2)))
    predicted = torch.zeros(2, *SHAPE, requires_grad=True)
    loss = built.loss(predicted, noised, torch.ones(2))
    loss.total.backward()
    assert predicted.grad is not None
    expected = -2 * noised.noise / noised.noise[0].numel() * loss.weight.view(2, 1, 1, 1)
    torch.testing.assert_close(predicted.grad, expected)


def test_empty_batch_is_accepted() -> None:
    built = objective(noise_offset=0.1)
    noised = built.noise(clean(range(0)), step_draws(range(0)))
    loss = built.loss(torch.zeros(0, *SHAPE), noised, torch.ones(0))
    assert (noised.x_t.shape, loss.per_sample.shape, loss.total.item()) == ((0, *SHAPE), (0,), 0)


class CountReadBacks(TorchDispatchMode):
    """Counts scalars that travel from the device to the host."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in (torch.ops.aten._local_scalar_dense.default, torch.ops.aten.is_nonzero.default):
            self.found.append(str(func))
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("kind", ["epsilon", "v", "x0"])
@pytest.mark.parametrize("loss", ["mse", "huber"])
def test_no_value_is_read_back_from_the_device(kind: str, loss: str) -> None:
    built = objective(kind, loss=loss, min_snr_gamma=5.0, noise_offset=0.1, zero_terminal_snr=True)
    x_0, positions = clean(range(3)), np.arange(3)
    with CountReadBacks() as count:
        noised = built.noise(x_0, StepDraws.at(1, 2, positions, "cpu"))
        built.loss(noised.x_t, noised, torch.ones(3))
    assert count.found == []
    with CountReadBacks() as count:
        float(noised.x_t.sum())
    assert len(count.found) == 1


def test_meta_device_batch_has_its_shapes() -> None:
    built = objective("v", min_snr_gamma=5.0, noise_offset=0.1).to("meta")
    x_0 = torch.empty(3, *SHAPE, device="meta")
    noised = built.noise(x_0, StepDraws.at(1, 2, np.arange(3), "meta"))
    loss = built.loss(noised.x_t, noised, torch.ones(3, device="meta"))
    assert loss.per_sample.shape == (3,)
    assert loss.per_sample.device.type == "meta"


def test_unknown_prediction_is_refused() -> None:
    with pytest.raises(ValueError, match="warp"):
        objective("warp")


@pytest.mark.parametrize("began", [False, True])
def test_zero_terminal_snr_can_be_switched_on_and_off(began: bool) -> None:
    ours = objective("v", zero_terminal_snr=began, min_snr_gamma=5)
    for now in (not began, began, began):
        ours.take(ObjectiveSettings(zero_terminal_snr=now, min_snr_gamma=5))
        fresh = objective("v", zero_terminal_snr=now, min_snr_gamma=5)
        assert torch.equal(ours.schedule.alpha_bar, fresh.schedule.alpha_bar)
        noised = ours.noise(clean(range(2)), step_draws(range(2)))
        assert torch.equal(noised.x_t, fresh.noise(clean(range(2)), step_draws(range(2))).x_t)
        losses = [one.loss(noised.x_t, noised, torch.ones(2)) for one in (ours, fresh)]
        assert torch.equal(losses[0].weight, losses[1].weight)
        assert torch.equal(losses[0].per_sample, losses[1].per_sample)


def test_refused_schedule_changes_nothing() -> None:
    ours = objective("edm", noise_offset=0.1)
    with pytest.raises(RecipeError, match="zero_terminal_snr"):
        ours.take(ObjectiveSettings(zero_terminal_snr=True))
    assert ours.settings.noise_offset == 0.1
    assert not ours.schedule.zero_terminal
