"""What a network is shown and told at a level of noise, and what it should say: one object for training and drawing.

Networks of `PREDICTIONS` are shown x_t = √ᾱ_t x_0 + √(1 − ᾱ_t) ε. Those of `IN_SIGMA` are thought of in σ, by
`preconditioning`: of x_σ = x_0 + σ ε they are shown c_in x_σ. In both, they are given a timestep, or ¼ ln σ.
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
"""The kinds of prediction that are thought of in σ."""
_TAKES_LOG_SIGMA = ("edm", "v-edm")

TimeInput = Literal["auto", "timestep", "log-sigma"]


@dataclass(frozen=True, slots=True)
class Parameterization:
    """prediction: of `PREDICTIONS` or `IN_SIGMA`, or "flow", the velocity of a straight path; another one raises
    ValueError. sigma_data: σ_d of "edm". time_input: "auto" is the timestep, and ¼ ln σ for "edm" and "v-edm". Raises
    RecipeError E1077 where ¼ ln σ is asked for and the kind never takes it."""

    prediction: str
    sigma_data: float = 0.5
    time_input: TimeInput = "auto"

    def __post_init__(self) -> None:
        known = (*PREDICTIONS, *IN_SIGMA, PREDICTION)
        if self.prediction not in known:
            raise ValueError(f"no objective is known for prediction {self.prediction!r}; known: {', '.join(known)}")
        if self.time_input == "log-sigma" and self.prediction not in ("v", *_TAKES_LOG_SIGMA):
            raise RecipeError(
                f"objective.time_input is log-sigma, which v, {' and '.join(_TAKES_LOG_SIGMA)} may be given, and the "
                f"denoiser predicts {self.prediction}; write objective.time_input=auto",
                code="E1077",
            )

    @property
    def in_sigma(self) -> bool:
        """Whether its input is c_in x_σ."""
        return self.prediction in IN_SIGMA

    @property
    def tells_sigma(self) -> bool:
        """Whether the network is told ¼ ln σ, not a timestep."""
        if self.time_input == "auto":
            return self.prediction in _TAKES_LOG_SIGMA
        return self.time_input == "log-sigma"

    @property
    def solved(self) -> str:
        """What solvers are told that the network predicts: of networks in σ what `as_velocity` makes of it."""
        return "v" if self.in_sigma else self.prediction

    def factors(self, sigma: Tensor) -> preconditioning.Scaling:
        """Of a network in σ."""
        return preconditioning.scaling(cast(ScalingName, self.prediction), sigma, sigma_data=self.sigma_data)

    def model_input(self, x_sigma: Tensor, sigma: Tensor) -> Tensor:
        """c_in x_σ. x_sigma: (B, C, …) float32; sigma: (B,)."""
        return expand_to(self.factors(sigma).c_in, x_sigma.ndim) * x_sigma

    def model_t(self, sigma: Tensor, timestep: Tensor) -> Tensor:
        """What the network is told, (B,): the timestep as it is given, or ¼ ln σ."""
        return 0.25 * sigma.log() if self.tells_sigma else timestep

    def target(self, x_0: Tensor, eps: Tensor, sigma: Tensor) -> Tensor:
        """What a network in σ should say, (x_0 − c_skip x_σ)/c_out with x_σ = x_0 + σ ε, written so that nothing is
        divided by a small number: float32."""
        x_0, eps, at = x_0.float(), eps.float(), expand_to(sigma, x_0.ndim)
        match self.prediction:
            case "epsilon-unscaled":
                return eps
            case "v-edm":
                return (eps - at * x_0) / (at**2 + 1.0).sqrt()
            case "edm":
                return (at * x_0 / self.sigma_data - self.sigma_data * eps) / (at**2 + self.sigma_data**2).sqrt()
            case _:
                raise AssertionError(self.prediction)

    def seen(self, x_t: Tensor, t: Tensor, schedule: Schedule) -> tuple[Tensor, Tensor]:
        """What the network is shown and told of x_t while drawing. t: (B,), between timesteps where a solver stops
        there. Returns its input and (B,)."""
        if not self.in_sigma and not self.tells_sigma:
            return x_t, t
        sigma = sigma_at(t, schedule)
        model_t = self.model_t(sigma, t)
        if not self.in_sigma:
            return x_t, model_t
        return self.model_input(x_t.float() * expand_to((1.0 + sigma**2).sqrt(), x_t.ndim), sigma), model_t

    def as_velocity(self, output: Tensor, x_t: Tensor, t: Tensor, schedule: Schedule) -> Tensor:
        """The network's output, of a network in σ as the velocity √ᾱ_t ε − √(1 − ᾱ_t) x_0 that it means, float32."""
        if not self.in_sigma:
            return output
        sigma = sigma_at(t, schedule)
        root, at = expand_to((1.0 + sigma**2).sqrt(), x_t.ndim), expand_to(sigma, x_t.ndim)
        x_sigma = x_t.float() * root
        x_0 = preconditioning.denoised(output, x_sigma, self.factors(sigma))
        # √ᾱ = 1/root, √(1 − ᾱ) = σ/root, and x_t = √ᾱ x_σ
        return (x_t.float() - root * x_0) / at


def sigma_at(t: Tensor, schedule: Schedule) -> Tensor:
    """σ at timesteps, (B,) float32; between two of them in proportion."""
    table = schedule.sigma
    last = table.shape[0] - 1
    if not t.is_floating_point():
        return table[t.clamp(0, last)]
    below = t.floor().long().clamp(0, last)
    return torch.lerp(table[below], table[(below + 1).clamp(max=last)], (t - below).float())
