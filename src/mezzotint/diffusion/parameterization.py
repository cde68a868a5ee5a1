"""A network's input, time input and target at a level of noise: one object for training and sampling.

Networks of `PREDICTIONS` take x_t = √ᾱ_t x_0 + √(1 − ᾱ_t) ε. Those of `IN_SIGMA` are parameterized by σ, see
`preconditioning`: they take c_in x_σ with x_σ = x_0 + σ ε. The time input of both is a timestep or ¼ ln σ.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, cast

import torch
from torch import Tensor

from mezzotint.diffusion import preconditioning
from mezzotint.diffusion.flow import PREDICTION
from mezzotint.diffusion.preconditioning import ScalingName
from mezzotint.diffusion.prediction import PREDICTIONS, expand_to
from mezzotint.diffusion.schedule import Schedule
from mezzotint.errors import RecipeError

IN_SIGMA = ("edm", "v-edm", "epsilon-unscaled")
"""The kinds of prediction that are parameterized by σ."""
_TAKES_LOG_SIGMA = ("edm", "v-edm")

TimeInput = Literal["auto", "timestep", "log-sigma"]


@dataclass(frozen=True, slots=True)
class Parameterization:
    """prediction: of `PREDICTIONS` or `IN_SIGMA`, or "flow", the velocity of flow matching; others raise ValueError.
    sigma_data: σ_d of "edm". time_input: "auto" is the timestep, and ¼ ln σ for "edm" and "v-edm". Raises RecipeError
    E1077 for ¼ ln σ with a kind that cannot take it."""

    prediction: str
    sigma_data: float = 0.5
    time_input: TimeInput = "auto"

    def __post_init__(self) -> None:
        choices = (*PREDICTIONS, *IN_SIGMA, PREDICTION)
        if self.prediction not in choices:
            raise ValueError(f"unknown prediction {self.prediction!r}; choose from {', '.join(choices)}")
        if self.time_input == "log-sigma" and self.prediction not in ("v", *_TAKES_LOG_SIGMA):
            raise RecipeError(
                f"objective.time_input=log-sigma works with v, {' and '.join(_TAKES_LOG_SIGMA)} predictions, but "
                f"the denoiser predicts {self.prediction}; write objective.time_input=auto",
                code="E1077",
            )

    @property
    def in_sigma(self) -> bool:
        """Whether the network's input is c_in x_σ."""
        return self.prediction in IN_SIGMA

    @property
    def takes_log_sigma(self) -> bool:
        """Whether the time input is ¼ ln σ, not a timestep."""
        if self.time_input == "auto":
            return self.prediction in _TAKES_LOG_SIGMA
        return self.time_input == "log-sigma"

    @property
    def solver_prediction(self) -> str:
        """The prediction that solvers work with: for networks parameterized by σ that of `as_velocity`."""
        return "v" if self.in_sigma else self.prediction

    def factors(self, sigma: Tensor) -> preconditioning.Scaling:
        """The factors of a network parameterized by σ."""
        return preconditioning.compute_scaling(cast(ScalingName, self.prediction), sigma, sigma_data=self.sigma_data)

    def model_input(self, x_sigma: Tensor, sigma: Tensor) -> Tensor:
        """c_in x_σ. x_sigma: (B, C, …) float32; sigma: (B,)."""
        return expand_to(self.factors(sigma).c_in, x_sigma.ndim) * x_sigma

    def model_t(self, sigma: Tensor, timestep: Tensor) -> Tensor:
        """The network's time input, (B,): the timestep unchanged, or ¼ ln σ."""
        return 0.25 * sigma.log() if self.takes_log_sigma else timestep

    def target(self, x_0: Tensor, eps: Tensor, sigma: Tensor) -> Tensor:
        """The target of a network parameterized by σ, (x_0 − c_skip x_σ)/c_out with x_σ = x_0 + σ ε, float32; written
        to avoid division by small numbers."""
        x_0, eps, expanded_sigma = x_0.float(), eps.float(), expand_to(sigma, x_0.ndim)
        match self.prediction:
            case "epsilon-unscaled":
                return eps
            case "v-edm":
                return (eps - expanded_sigma * x_0) / (expanded_sigma**2 + 1.0).sqrt()
            case "edm":
                return (expanded_sigma * x_0 / self.sigma_data - self.sigma_data * eps) / (
                    expanded_sigma**2 + self.sigma_data**2
                ).sqrt()
            case _:
                raise AssertionError(self.prediction)

    def make_inputs(self, x_t: Tensor, t: Tensor, schedule: Schedule) -> tuple[Tensor, Tensor]:
        """The network's input and time input at x_t while sampling. t: (B,), possibly between timesteps. Returns the
        input and (B,)."""
        if not self.in_sigma and not self.takes_log_sigma:
            return x_t, t
        sigma = sigma_at(t, schedule)
        model_t = self.model_t(sigma, t)
        if not self.in_sigma:
            return x_t, model_t
        return self.model_input(x_t.float() * expand_to((1.0 + sigma**2).sqrt(), x_t.ndim), sigma), model_t

    def as_velocity(self, output: Tensor, x_t: Tensor, t: Tensor, schedule: Schedule) -> Tensor:
        """The network's output; for a network parameterized by σ converted to the velocity √ᾱ_t ε − √(1 − ᾱ_t) x_0,
        float32."""
        if not self.in_sigma:
            return output
        sigma = sigma_at(t, schedule)
        root, expanded_sigma = expand_to((1.0 + sigma**2).sqrt(), x_t.ndim), expand_to(sigma, x_t.ndim)
        x_sigma = x_t.float() * root
        x_0 = preconditioning.denoise(output, x_sigma, self.factors(sigma))
        # √ᾱ = 1/root, √(1 − ᾱ) = σ/root, and x_t = √ᾱ x_σ
        return (x_t.float() - root * x_0) / expanded_sigma


def sigma_at(t: Tensor, schedule: Schedule) -> Tensor:
    """σ at timesteps, (B,) float32, linearly interpolated between them."""
    table = schedule.sigma
    last = table.shape[0] - 1
    if not t.is_floating_point():
        return table[t.clamp(0, last)]
    below = t.floor().long().clamp(0, last)
    return torch.lerp(table[below], table[(below + 1).clamp(max=last)], (t - below).float())
