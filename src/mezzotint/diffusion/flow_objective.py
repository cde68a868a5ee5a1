"""The flow-matching objective: σ is drawn, the input is x = (1 − σ) x_0 + σ ε, the target is the velocity ε − x_0.

The rest is as in `Objective`: noise by address, offset and pyramid noise, the kinds of loss.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from mezzotint.diffusion import densities, flow, weighting
from mezzotint.diffusion.flow import FlowSchedule
from mezzotint.diffusion.objective import Objective, StepDraws
from mezzotint.diffusion.prediction import expand_to
from mezzotint.diffusion.schedule import Schedule
from mezzotint.errors import RecipeError
from mezzotint.settings.sections.objective import OF_THE_LOSS, ObjectiveSettings
from mezzotint.stages import Loss, Noised


class FlowObjective(Objective):
    """What a flow-matching denoiser learns in a step. Levels are σ, in [0, 1]; the network's time input is t = 1000 σ
    in float32, which each family converts to its form."""

    schedule: FlowSchedule

    def noise(self, x_0: Tensor, draws: StepDraws) -> Noised:
        """See Objective: σ is drawn by `objective.flow` and shifted by its `shift`."""
        sigma = self.levels(draws, x_0.shape[1:])
        noised = self.noise_at(x_0, draws, sigma, sigma.to(x_0.device, non_blocking=True))
        return replace(noised, host_level=sigma)

    def levels(self, draws: StepDraws, shape: torch.Size) -> Tensor:
        """σ of each sample, (B,) float32 on the host. shape: of one sample's latents, on which the shift may depend."""
        settings = self.settings.flow
        shift = self.shift_of(shape)
        low, high = (flow.unshift_sigma(sigma, shift) for sigma in self._bounds())
        unshifted = low + (high - low) * densities.draw(settings, draws.timestep)
        if settings.grid == "table":
            unshifted = np.clip(flow.round_to_table(unshifted), low, high)
        return flow.shift_sigma(torch.from_numpy(unshifted).float(), shift)

    def _bounds(self) -> tuple[float, float]:
        """The lowest and the highest σ: the recipe's range, limited to that of the trained denoiser. Raises RecipeError
        E1481 when they do not overlap."""
        (low, high), (least, most) = self.settings.flow.sigmas, self.schedule.span
        if max(low, least) >= min(high, most):
            raise RecipeError(
                f"objective.flow.sigmas is [{low:g}, {high:g}], but the denoiser in model.train works at σ from "
                f"{least:g} to {most:g}; remove objective.flow.sigmas, or train the other denoiser",
                code="E1481",
            )
        return max(low, least), min(high, most)

    def shift_of(self, shape: torch.Size) -> float:
        """The shift s of σ for samples of this shape."""
        match self.settings.flow.shift:
            case "auto":
                return self.schedule.shift_of(shape) if self.schedule.by_resolution else self.schedule.shift
            case "table":
                return self.schedule.shift
            case "resolution":
                return self.schedule.shift_of(shape)
            case number:
                return number

    def noise_at(self, x_0: Tensor, draws: StepDraws, timesteps: Tensor, sigma: Tensor | None = None) -> Noised:
        """See Objective: timestep t is σ = t/1000, whichever levels are trained. sigma: (B,) levels to use instead."""
        x_0 = x_0.float()
        eps, input_noise = self._noises(x_0, draws)
        count = self.schedule.num_timesteps
        level = timesteps.float() / count if sigma is None else sigma
        expanded_sigma = expand_to(level, x_0.ndim)
        x_t = (1.0 - expanded_sigma) * x_0 + expanded_sigma * input_noise
        return Noised(x_0, eps, x_t, x_t, level * count, level=level)

    def target(self, noised: Noised) -> Tensor:
        """See Objective: the velocity ε − x_0."""
        return noised.noise - noised.x_0

    def loss(self, predicted: Tensor, noised: Noised, weight: Tensor, mask: Tensor | None = None) -> Loss:
        """See Objective: of clips with first-frame conditioning, the mean over the frames after the first."""
        return super().loss(predicted, noised, weight, _mask_first_frame(noised, mask))

    def distance(self, predicted: Tensor, other: Tensor, noised: Noised, mask: Tensor | None = None) -> Tensor:
        """See Objective: as `loss` with first-frame conditioning."""
        return super().distance(predicted, other, noised, _mask_first_frame(noised, mask))

    def timestep(self, noised: Noised) -> Tensor:
        """See Objective: 1000 σ."""
        return noised.level * self.schedule.num_timesteps

    def _level_weight(self, level: Tensor) -> Tensor:
        if self.settings.weighting == "table":
            return weighting.look_up(self._weights, level)
        if self.settings.weighting in OF_THE_LOSS:
            return weighting.flow_weight(self.settings.weighting, level)
        return self._factor(
            ((1.0 - level) / level.clamp_min(torch.finfo(level.dtype).tiny)).square().clamp_max(2.0**60)
        )

    def _weights_by_level(self) -> Tensor:
        table = self.settings.weight_table
        if table is None:
            return super()._weights_by_level()
        return weighting.read_weight_table(table).to(self.schedule.alpha_bar.device)

    def _factor(self, snr: Tensor) -> Tensor:
        if self.settings.weighting in OF_THE_LOSS:
            return torch.ones_like(snr)
        return super()._factor(snr)

    def _loss_kind(self) -> str:
        return "x0" if self.settings.flow.preconditioned else self.prediction

    def _error(self, predicted: Tensor, target: Tensor, noised: Noised) -> Tensor:
        if not self.settings.flow.preconditioned:
            return super()._error(predicted, target, noised)
        x_0 = noised.x_t - expand_to(noised.level, predicted.ndim) * predicted
        return super()._error(x_0, noised.x_0, noised)


def with_first_frame(noised: Noised, has_first_frame: Tensor) -> Noised:
    """The same with the first latent frame of some clips without noise. has_first_frame: which clips, (B,) bool on the
    device."""
    clean = has_first_frame[:, None, None, None, None] & _is_first(noised.x_0)
    x_t = torch.where(clean, noised.x_0, noised.x_t)
    return replace(noised, x_t=x_t, model_input=x_t, has_first_frame=has_first_frame)


def _is_first(x: Tensor) -> Tensor:
    """(1, 1, f, 1, 1) bool. x: (B, C, f, h, w)."""
    return (torch.arange(x.shape[2], device=x.device) == 0)[None, None, :, None, None]


def _mask_first_frame(noised: Noised, mask: Tensor | None) -> Tensor | None:
    if noised.has_first_frame is None:
        return mask
    frames = noised.x_0.shape[2]
    rest = (~_is_first(noised.x_0)).float() * (frames / (frames - 1))
    counting = torch.where(noised.has_first_frame[:, None, None, None, None], rest, 1.0)
    return counting if mask is None else counting * mask


def objective_of(settings: ObjectiveSettings, schedule: Schedule, prediction: str) -> Objective:
    """The objective that fits a model's schedule. Raises what `Objective` raises."""
    kind = FlowObjective if isinstance(schedule, FlowSchedule) else Objective
    return kind(settings, schedule, prediction)
