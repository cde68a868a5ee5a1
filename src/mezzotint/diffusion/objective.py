"""The objective: clean latents → noised latents → target → loss of each sample.

Nothing is read back from the device. Timesteps are drawn on the host, noise on the device, both by address.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from mezzotint import draws
from mezzotint.diffusion import (
    learned_variance,
    noise,
    preconditioning,
    prediction,
    pseudo_huber,
    pyramid,
    timesteps,
    weighting,
)
from mezzotint.diffusion.parameterization import Parameterization
from mezzotint.diffusion.prediction import expand_to
from mezzotint.diffusion.schedule import Schedule
from mezzotint.errors import RecipeError
from mezzotint.settings.sections.objective import ObjectiveSettings, TimestepBiasSettings
from mezzotint.stages import Loss, Noised


@dataclass(frozen=True, slots=True)
class StepDraws:
    """The addresses of one batch's draws. noise, offset, pyramid, perturbation, embedding: (B,) int64 on the device;
    without the last two nothing is perturbed. timestep, first_frame: (B,) uint64 on the host; without first_frame no
    clip has first-frame conditioning. The same for all samples of the step: shrinking, numbers in [2, 4) by which the
    levels of pyramid noise shrink; offset_share, perturbation_share, in [0, 1), which random strengths of the two kinds
    of noise are multiplied by."""

    noise: Tensor
    offset: Tensor
    timestep: NDArray[np.uint64]
    pyramid: Tensor
    shrinking: tuple[float, ...]
    perturbation: Tensor | None = None
    embedding: Tensor | None = None
    first_frame: NDArray[np.uint64] | None = None
    offset_share: float = 1.0
    perturbation_share: float = 1.0

    @classmethod
    def at(cls, seed: int, step: int, positions: NDArray[np.int64], device: torch.device | str) -> Self:
        """Addressed by (seed, purpose, step, position in the step's global batch). positions: (B,) int64."""
        purposes = ("noise", "offset", "pyramid", "perturbation", "embedding")
        addresses = np.stack([draws.keys(seed, purpose, step, positions) for purpose in purposes])
        # a single copy to the device
        on_device = torch.from_numpy(addresses.view(np.int64)).to(device, non_blocking=True)
        levels = draws.keys(seed, "pyramid-size", step, np.arange(pyramid.LEVELS))
        return cls(
            timestep=draws.keys(seed, "timestep", step, positions),
            shrinking=pyramid.ratios(draws.uniforms(levels).tolist()),
            first_frame=draws.keys(seed, "first-frame", step, positions),
            offset_share=draws.uniform(draws.key(seed, "offset-strength", step)),
            perturbation_share=draws.uniform(draws.key(seed, "perturbation-strength", step)),
            **dict(zip(purposes, on_device, strict=True)),
        )


class SampleLoss(Protocol):
    """The loss of each sample, (B,) float32, instead of `objective.loss`. predicted, target: (B, C, *spatial)
    float32. timesteps, weight: (B,) float32. mask: (B, *spatial), which latents count, or None."""

    def __call__(
        self, predicted: Tensor, target: Tensor, noised: Noised, timesteps: Tensor, weight: Tensor, mask: Tensor | None
    ) -> Tensor: ...


class Objective:
    """What a denoiser learns in a step. `schedule` is rescaled when the settings ask for zero terminal SNR;
    `parameterization` gives the denoiser's input and time input.

    settings: the recipe's section. schedule: the family's. prediction: see `Parameterization`; others raise ValueError.
    A timestep range beyond the schedule's end raises RecipeError E1051, a rescaled schedule for a network parameterized
    by σ and a weighting without a formula for the prediction E1077.
    """

    def __init__(self, settings: ObjectiveSettings, schedule: Schedule, prediction: str) -> None:
        self.parameterization = Parameterization(prediction, settings.sigma_data, settings.time_input)
        self.settings = settings
        self.prediction = prediction
        _check_rescaled(settings, self.parameterization)
        _check_debiased(settings, prediction)
        self._plain = schedule
        self.schedule = schedule.rescale_to_zero_terminal_snr() if settings.zero_terminal_snr else schedule
        self._range = _resolve_range(settings.timesteps, schedule.num_timesteps)
        self._shares = _biased_shares(settings.timestep_bias, self._range, schedule.num_timesteps)
        self._sigma = self.schedule.sigma
        self._weights = self._weights_by_level()
        self._learned_range: learned_variance.LearnedRange | None = None
        self.user_loss: SampleLoss | None = None

    def to(self, device: torch.device | str) -> Self:
        """Moves the tables to a device; returns itself."""
        self._plain, self.schedule = self._plain.to(device), self.schedule.to(device)
        self._sigma, self._weights = self._sigma.to(device), self._weights.to(device)
        self._learned_range = None
        return self

    def take(self, settings: ObjectiveSettings) -> None:
        """Uses other settings from now on: noise offset, Min-SNR and zero terminal SNR may change during a run. Raises
        RecipeError E1077 for a schedule that this denoiser cannot use, and then changes nothing."""
        _check_rescaled(settings, self.parameterization)
        if settings.zero_terminal_snr != self.settings.zero_terminal_snr:
            plain = self._plain
            self.schedule = plain.rescale_to_zero_terminal_snr() if settings.zero_terminal_snr else plain
            self._sigma = self.schedule.sigma
            self._learned_range = None
        self.settings = settings
        self._weights = self._weights_by_level()

    def noise(self, x_0: Tensor, draws: StepDraws) -> Noised:
        """Noised latents at random levels. x_0: (B, C, *spatial), B addresses in draws.

        Timesteps come from `objective.timesteps`, uniformly or by `objective.timestep_bias`; log-normal levels have no
        timestep, and a network that takes one gets the nearest.
        """
        if self.settings.noise_levels == "log-normal":
            mean, std = self.settings.log_normal
            # on the host: the logarithm is the same on every machine
            normals = noise.normal(torch.from_numpy(draws.timestep.view(np.int64)), ())
            sigma = preconditioning.log_normal(normals, mean=mean, std=std).to(x_0.device, non_blocking=True)
            nearest = preconditioning.find_nearest(self._sigma, sigma)
            return self.noise_at(x_0, draws, nearest, sigma if self.parameterization.takes_log_sigma else None)
        if self._shares is None:
            drawn = timesteps.draw(draws.timestep, *self._range)
        else:
            drawn = timesteps.draw_shared(draws.timestep, self._shares)
        return self.noise_at(x_0, draws, torch.from_numpy(drawn).to(x_0.device, non_blocking=True))

    def noise_at(self, x_0: Tensor, draws: StepDraws, timesteps: Tensor, sigma: Tensor | None = None) -> Noised:
        """Noised latents at given timesteps. timesteps: (B,) int64 on the device, below T. sigma: (B,) levels between
        timesteps, which are then the nearest ones. For a network parameterized by σ the level is σ, and x_t is x_σ.

        Offset noise is one normal number for each sample, with `objective.noise_offset_per=channel` for each channel,
        the same at all positions and frames; it is part of the noise, and so of the target. x_t and noise are float32.
        """
        x_0, form = x_0.float(), self.parameterization
        eps, input_noise = self._noises(x_0, draws)
        sigmas = self._sigma[timesteps] if sigma is None else sigma
        model_t = form.model_t(sigmas, timesteps)
        if form.in_sigma:
            x_sigma = x_0 + expand_to(sigmas, x_0.ndim) * input_noise
            return Noised(x_0, eps, x_sigma, form.model_input(x_sigma, sigmas), model_t, level=sigmas)
        alpha_bar = self.schedule.alpha_bar[timesteps] if sigma is None else 1.0 / (1.0 + sigma**2)
        x_t = prediction.add_noise(x_0, input_noise, alpha_bar)
        return Noised(x_0, eps, x_t, x_t, model_t, level=timesteps.float() if sigma is None else sigma)

    def _noises(self, x_0: Tensor, draws: StepDraws) -> tuple[Tensor, Tensor]:
        """The noise of the target, and the noise of the network's input, which `objective.input_perturbation`
        increases."""
        settings, eps = self.settings, self._base_noise(x_0, draws)
        if settings.noise_offset or settings.noise_offset_adaptive_scale:
            count = x_0.shape[1] if settings.noise_offset_per == "channel" else 1
            drawn = noise.normal(draws.offset, (count, *[1] * (x_0.ndim - 2)))
            eps = eps + self._offset_strength(x_0, draws.offset_share) * drawn
        if not settings.input_perturbation or draws.perturbation is None:
            return eps, eps
        share = draws.perturbation_share if settings.input_perturbation_random_strength else 1.0
        return eps, eps + share * settings.input_perturbation * noise.normal(draws.perturbation, x_0.shape[1:])

    def _offset_strength(self, x_0: Tensor, share: float) -> Tensor | float:
        """The deviation of offset noise: a number, or (B, C, 1, …) if it follows the latents."""
        settings = self.settings
        strength = (share if settings.noise_offset_random_strength else 1.0) * settings.noise_offset
        if not settings.noise_offset_adaptive_scale:
            return strength
        return noise.adaptive_offset(x_0, strength, settings.noise_offset_adaptive_scale)

    def _base_noise(self, x_0: Tensor, draws: StepDraws) -> Tensor:
        """Normal noise, or pyramid noise of the same standard deviation."""
        eps = noise.normal(draws.noise, x_0.shape[1:])
        discount = self.settings.pyramid_discount
        if not discount or eps[0].numel() < 2:
            return eps
        height, width = x_0.shape[-2:]
        sizes = pyramid.sizes(height, width, draws.shrinking)
        shapes = [(*x_0.shape[1:-2], *size) for size in sizes]
        counts = [math.prod(shape) for shape in shapes]
        drawn = noise.normal(draws.pyramid, (sum(counts),)).split(counts, dim=1)
        levels = [small.view(-1, *shape) for small, shape in zip(drawn, shapes, strict=True)]
        return pyramid.normalize_deviation(pyramid.add_levels(eps, levels, discount))

    def perturb_text(self, states: Tensor, draws: StepDraws) -> Tensor:
        """Text states with the noise of `objective.embedding_perturbation` g: normal, of standard deviation g/√D, only
        in training (validation has no address for it).

        states: (B, L, D). Returns their shape and dtype; gradients pass through.
        """
        strength = self.settings.embedding_perturbation
        if not strength or draws.embedding is None:
            return states
        drawn = noise.normal(draws.embedding, states.shape[1:])
        return states + (strength / math.sqrt(states.shape[-1]) * drawn).to(states.dtype)

    def target(self, noised: Noised) -> Tensor:
        """The target of the prediction, (B, C, *spatial) float32."""
        if self.parameterization.in_sigma:
            return self.parameterization.target(noised.x_0, noised.noise, noised.level)
        level = noised.level
        alpha_bar = 1.0 / (1.0 + level**2) if self._has_sigma else self.schedule.alpha_bar[level.long()]
        return prediction.target(self.prediction, noised.x_0, noised.noise, alpha_bar)

    def loss(self, predicted: Tensor, noised: Noised, weight: Tensor, mask: Tensor | None = None) -> Loss:
        """The loss of each sample: the mean over its elements, in float32 for any dtype of the prediction.

        predicted: (B, C, *spatial), or with twice the channels; see `learned_variance.py`: its variational term is
        added, without the weight of the level. weight: (B,) float32, of the samples; it is multiplied by the weight of
        the level, from `objective.weighting` and Min-SNR. mask: (B, *spatial), 1 where latents count.
        mse: e². l1: |e|. huber: ½e² up to |e| = δ, δ(|e| − ½δ) beyond (Huber 1964), which is half of mse for small
        errors. mse-huber: mse · t/T + huber · (1 − t/T) with T timesteps (EveryDream2's direction: Huber at 0);
        huber-mse: mse · (1 − t/T) + huber · t/T. pseudo-huber, smooth-l1: see `pseudo_huber.py`, with c by
        `objective.huber_schedule`.
        """
        output, v = learned_variance.split_prediction(predicted, noised.x_t)
        output, target = output.float(), self.target(noised)
        if self.user_loss is not None:
            per_sample = self.user_loss(output, target, noised, self.timestep(noised), weight, mask)
        else:
            per_sample = learned_variance.mean(self._error(output, target, noised), mask)
        level_weight = self._level_weight(noised.level)
        if v is None:
            return Loss(per_sample=per_sample, weight=weight * level_weight)
        if self._learned_range is None:
            self._learned_range = learned_variance.LearnedRange(self.schedule, self.prediction)
        bits = learned_variance.mean(self._learned_range.bits(output, v, noised), mask)
        return Loss(per_sample=level_weight * per_sample + bits, weight=weight)

    def distance(self, predicted: Tensor, other: Tensor, noised: Noised, mask: Tensor | None = None) -> Tensor:
        """The mean squared difference between two predictions of each sample, (B,) float32, without a weight of the
        level or a learned variance. mask: see `loss`."""
        one, two = (learned_variance.split_prediction(output, noised.x_t)[0].float() for output in (predicted, other))
        return learned_variance.mean((one - two).square(), mask)

    @property
    def _has_sigma(self) -> bool:
        """Whether a level is σ, not a timestep."""
        form = self.parameterization
        return form.in_sigma or (self.settings.noise_levels == "log-normal" and form.takes_log_sigma)

    def _level_weight(self, level: Tensor) -> Tensor:
        """The factor of the error at each level, (B,)."""
        return self._factor(level**-2.0) if self._has_sigma else self._weights[level.long()]

    def _weights_by_level(self) -> Tensor:
        """The weights that `_level_weight` looks up, of all timesteps."""
        return self._factor(self.schedule.snr)

    def _loss_kind(self) -> str:
        """The kind of prediction whose error is measured."""
        return self.prediction

    def _factor(self, snr: Tensor) -> Tensor:
        """The factor of the error at these SNR."""
        return weighting.factor(
            self._loss_kind(),
            snr,
            weighting=self.settings.weighting,
            gamma=self.settings.min_snr_gamma,
            form=self.settings.min_snr_form,
            squared=self.settings.loss != "l1",
            sigma_data=self.settings.sigma_data,
        )

    def _error(self, predicted: Tensor, target: Tensor, noised: Noised) -> Tensor:
        kind = self.settings.loss
        if kind == "l1":
            return functional.l1_loss(predicted, target, reduction="none")
        if kind in ("pseudo-huber", "smooth-l1"):
            formula = pseudo_huber.pseudo_huber if kind == "pseudo-huber" else pseudo_huber.smooth_l1
            return formula(predicted - target, expand_to(self._huber_c(noised), predicted.ndim))
        mse = functional.mse_loss(predicted, target, reduction="none")
        if kind == "mse":
            return mse
        huber = functional.huber_loss(predicted, target, reduction="none", delta=self.settings.huber_delta)
        if kind == "huber":
            return huber
        noise_share = expand_to(self.timestep(noised) / self.schedule.num_timesteps, noised.x_0.ndim)
        return torch.lerp(huber, mse, noise_share if kind == "mse-huber" else 1.0 - noise_share)

    def _huber_c(self, noised: Noised) -> Tensor:
        """The parameter of the pseudo-Huber losses, (B,) float32."""
        settings = self.settings
        match settings.huber_schedule:
            case "constant":
                c = torch.full_like(noised.level, settings.huber_delta, dtype=torch.float32)
            case "exponential":
                noise_share = self.timestep(noised) / self.schedule.num_timesteps
                c = pseudo_huber.exponential_c(settings.huber_delta, noise_share)
            case "snr":
                sigma = noised.level if self._has_sigma else self._sigma[noised.level.long()]
                c = pseudo_huber.snr_c(settings.huber_delta, sigma)
        return settings.huber_scale * c

    def timestep(self, noised: Noised) -> Tensor:
        """The timestep of each sample, (B,) float32; for levels in σ the nearest one."""
        return preconditioning.find_nearest(self._sigma, noised.level).float() if self._has_sigma else noised.level


def _resolve_range(span: tuple[int, int], num_timesteps: int) -> tuple[int, int]:
    """The settings' range within the schedule's timesteps. (0, 1000) means all of them, however many the schedule
    has."""
    low, high = span if span != (0, 1000) else (0, num_timesteps)
    if high > num_timesteps:
        raise RecipeError(
            f"objective.timesteps ends at {high}, but the model's schedule has {num_timesteps} timesteps; write "
            f"[{min(low, num_timesteps - 1)}, {num_timesteps}]",
            code="E1051",
        )
    return low, high


def _biased_shares(bias: TimestepBiasSettings, drawn: tuple[int, int], num_timesteps: int) -> NDArray[np.uint64] | None:
    """The table of shares for the timesteps in the range; None when all are equally likely."""
    if bias.strategy == "none":
        return None
    weights = timesteps.bias_weights(
        bias.strategy,
        multiplier=bias.multiplier,
        begin=min(bias.begin, num_timesteps),
        end=min(bias.end, num_timesteps),
        portion=bias.portion,
        num_timesteps=num_timesteps,
    )
    weights[: drawn[0]] = 0.0
    weights[drawn[1] :] = 0.0
    return timesteps.share_table(weights)


def _check_rescaled(settings: ObjectiveSettings, form: Parameterization) -> None:
    if settings.zero_terminal_snr and (form.in_sigma or form.takes_log_sigma):
        raise RecipeError(
            f"with objective.zero_terminal_snr σ of the last timestep is infinite, and a denoiser that predicts "
            f"{form.prediction} is parameterized by σ; write objective.zero_terminal_snr=false, or model.prediction=v",
            code="E1077",
        )


def _check_debiased(settings: ObjectiveSettings, prediction: str) -> None:
    known = weighting.DEBIASED_PREDICTIONS
    if settings.weighting == "debiased" and prediction not in known:
        raise RecipeError(
            f"objective.weighting=debiased has formulas for {', '.join(known)}, but the denoiser predicts "
            f"{prediction}; write objective.weighting=prediction",
            code="E1077",
        )
