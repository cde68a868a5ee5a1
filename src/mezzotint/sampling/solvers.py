"""Solvers of the reverse process, by name: diffusers' schedulers, told our schedule's very betas.

Diffusers' stochastic schedulers draw from a generator; here their noise is given from outside, so that it can be
addressed, and a picture is the same whatever it is drawn together with.

`sample.timestep_spacing=library` takes the classes as they are by default: DDIM and DDPM cut what they take the clean
latents to be at −1 and 1, PNDM begins with Runge–Kutta steps (nine more calls of the denoiser), and no timestep is
shifted by one. Open-Sora-Plan draws so. The noise schedule is the model's own, also for Heun and DPM2, whose classes
would by default take one that no such model was trained on.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Protocol, cast, get_args

import torch
from torch import Tensor

from mezzotint.diffusion.prediction import to_x_0
from mezzotint.diffusion.schedule import Schedule
from mezzotint.errors import RecipeError
from mezzotint.recipe.sections.sample import SolverName as SolverName
from mezzotint.recipe.sections.sample import Spacing
from mezzotint.sampling.sigmas import chosen_spacing

Network = Callable[[Tensor, Any], Tensor]
"""What a solver asks of the denoiser, guidance included: (x (B, C, …), a level) → (B, C, …). A descent in timesteps
asks for the output at a timestep, one in σ for the clean picture at a σ."""
Noise = Callable[[int], Tensor]
"""Standard normal noise in the shape of x, for a step by number."""

ONLY_IN_SIGMA: frozenset[str] = frozenset({"dpm++-2s-a", "lcm"})
"""Solvers that `sigma_samplers` has and diffusers has not."""
SOLVERS: tuple[SolverName, ...] = tuple(name for name in get_args(SolverName) if name not in ONLY_IN_SIGMA)
_RUNGE_KUTTA = 4
FROM_PURE_NOISE: frozenset[str] = frozenset({"ddim", "ddpm", "euler", "euler-a", "dpm++", "dpm++-sde", "unipc"})
"""Solvers that can begin where no signal is left (zero terminal SNR): the others divide by it."""


class Solver:
    """One descent from noise to latents. It keeps its place, so each descent has a solver of its own.

    name: see `sample.solver`. prediction: what the denoiser gives, "epsilon", "v" or "x0". steps: of the solver; heun
    and dpm2 call the denoiser nearly twice, pndm once more, than there are steps. spacing: "leading" (offset 1, as
    Stable Diffusion's own pipelines), "trailing" (from the very end, Lin et al. 2023, arXiv:2305.08891) or "linspace".
    "auto" is leading; with a schedule that ends in pure noise it is trailing, unless epsilon is predicted, which tells
    nothing of the picture there. Raises RecipeError E1070 for a solver that cannot draw from such a model.
    """

    def __init__(
        self,
        name: SolverName,
        schedule: Schedule,
        prediction: str,
        *,
        steps: int,
        device: torch.device | str,
        spacing: Spacing = "auto",
    ) -> None:
        chosen = chosen_spacing(spacing, schedule, prediction)
        _refuse_what_cannot_be(name, schedule, prediction, chosen)
        self._name = name
        self._prediction = prediction
        self._scheduler = _scheduler(name, schedule, prediction, chosen)
        if name == "pndm" and chosen == "library" and steps < _RUNGE_KUTTA:
            raise RecipeError(
                f"sample.steps is {steps}, and pndm as diffusers has it begins with {_RUNGE_KUTTA} Runge–Kutta steps; "
                f"write sample.steps={_RUNGE_KUTTA} or more, or another sample.timestep_spacing",
                code="E1070",
            )
        if name == "dpm++-single":  # what the library does by itself, in a warning of its own words
            self._scheduler.register_to_config(lower_order_final=True)
        self._scheduler.set_timesteps(steps, device=device)
        self.timesteps: Tensor = self._scheduler.timesteps
        """(n,) on the device, falling: what the denoiser is told at each of its calls."""

    def __len__(self) -> int:
        return len(self.timesteps)

    def start(self, noise: Tensor) -> Tensor:
        """Where the descent begins. noise: (B, C, h, w) standard normal."""
        return cast(Tensor, noise * self._scheduler.init_noise_sigma)

    def step(self, number: int, x: Tensor, network: Network, noise: Noise) -> Tensor:
        """One step down, in float32. network: its output for a scaled input at a timestep. noise: asked by stochastic
        solvers alone."""
        t = self.timesteps[number]
        output = network(cast(Tensor, self._scheduler.scale_model_input(x, t)), t).float()
        match self._name:
            case "euler-a":
                return self._ancestral_step(output, x, noise(number))
            case "ddpm":
                return self._ddpm_step(output, int(t), x, noise(number))
            case "dpm2-a":
                return cast(Tensor, self._scheduler.with_noise(output, t, x, noise(number)))
            case "dpm++-sde":
                return cast(Tensor, self._scheduler.step(output, t, x, variance_noise=noise(number)).prev_sample)
            case _:
                return cast(Tensor, self._scheduler.step(output, t, x, return_dict=False)[0])

    def _ddpm_step(self, output: Tensor, t: int, x: Tensor, noise: Tensor) -> Tensor:
        """A draw from q(x_{t'} | x_t, x_0), t' the next timestep of the descent (Ho et al. 2020, arXiv:2006.11239, eq.
        6 and 7)."""
        table, next_t = self._scheduler.alphas_cumprod, int(self._scheduler.previous_timestep(t))
        here, then = float(table[t]), float(table[next_t]) if next_t >= 0 else 1.0
        x_0 = to_x_0(self._prediction, output, x, torch.tensor(here, device=x.device).expand(len(x)))
        if self._scheduler.config.clip_sample:
            x_0 = x_0.clamp(-1.0, 1.0)
        beta = 1.0 - here / then
        mean = (math.sqrt(then) * beta * x_0 + math.sqrt(here / then) * (1.0 - then) * x) / (1.0 - here)
        return mean + math.sqrt(beta * (1.0 - then) / (1.0 - here)) * noise

    def _ancestral_step(self, output: Tensor, x: Tensor, noise: Tensor) -> Tensor:
        """Down to σ_down and up again by noise of σ_up, so that the level is σ_to: k-diffusion's `to_d` and
        `get_ancestral_step`, as diffusers' EulerAncestralDiscreteScheduler does it."""
        place = self._scheduler.step_index
        sigma, sigma_to = (float(s) for s in self._scheduler.sigmas[place : place + 2])
        # x = x_0 + σ ε; scaled to unit variance it is √ᾱ x_0 + √(1 − ᾱ) ε with ᾱ = 1/(1 + σ²)
        alpha_bar = torch.tensor(1.0 / (1.0 + sigma**2), dtype=torch.float32, device=x.device).expand(len(x))
        x_0 = to_x_0(self._prediction, output, x / math.sqrt(1.0 + sigma**2), alpha_bar)
        sigma_up = math.sqrt(sigma_to**2 * (sigma**2 - sigma_to**2) / sigma**2)
        sigma_down = math.sqrt(sigma_to**2 - sigma_up**2)
        self._scheduler._step_index += 1
        return x + (x - x_0) / sigma * (sigma_down - sigma) + noise * sigma_up


class Steps(Protocol):
    """A way from noise to latents, which keeps its place: a `Solver` or a descent in σ."""

    def __len__(self) -> int: ...

    def step(self, number: int, x: Tensor, network: Network, noise: Noise) -> Tensor: ...


Watch = Callable[[int, int, Tensor], None]
"""Hears (steps done, steps in all, x (B, C, …)) after each step of a descent."""


def descend(sampler: Steps, x: Tensor, network: Network, noise: Noise, watch: Watch | None = None) -> Tensor:
    """x after the last step; x itself where there is none."""
    for number in range(len(sampler)):
        x = sampler.step(number, x, network, noise)
        if watch is not None:
            watch(number + 1, len(sampler), x)
    return x


def _refuse_what_cannot_be(name: SolverName, schedule: Schedule, prediction: str, spacing: str) -> None:
    if prediction == "x0" and name in ("pndm", "dpm2", "dpm2-a"):
        raise RecipeError(
            f"sample.solver: {name} needs a model that predicts epsilon or v, and this one predicts the picture "
            "itself; take sample.solver=ddim",
            code="E1070",
        )
    # leading timesteps stop short of the last one; linspace and trailing begin there
    stops_short = spacing == "leading" and name != "dpm++-single"  # which knows no spacing
    if schedule.zero_terminal and not stops_short and name not in FROM_PURE_NOISE:
        usable = ", ".join(s for s in SOLVERS if s in FROM_PURE_NOISE)
        raise RecipeError(
            f"sample.solver: {name} cannot begin at the last timestep of this model, which is pure noise; "
            f"take one of {usable}, or sample.timestep_spacing=leading",
            code="E1070",
        )


_TAKE_ZERO_SNR = ("euler", "euler-a", "dpm++", "dpm++-sde", "unipc")


def _scheduler(name: SolverName, schedule: Schedule, prediction: str, spacing: str) -> Any:
    from mezzotint.sampling._schedulers import CLASSES  # here: it imports diffusers

    kind, usual, library = CLASSES[name]
    config: dict[str, Any] = {
        "num_train_timesteps": schedule.num_timesteps,
        "trained_betas": schedule.betas().tolist(),
        "prediction_type": {"epsilon": "epsilon", "v": "v_prediction", "x0": "sample"}[prediction],
    }
    if spacing == "library":
        if library is None:
            known = ", ".join(name for name, (_, _, one) in CLASSES.items() if one is not None)
            raise RecipeError(
                f"sample.timestep_spacing is library, and {name} is not drawn with diffusers' defaults; take one of "
                f"{known}, or another sample.timestep_spacing",
                code="E1070",
            )
        return kind(**config, **library)
    if name != "dpm++-single":  # which knows no spacing
        config |= {"timestep_spacing": spacing, "steps_offset": 1}
    if name in _TAKE_ZERO_SNR:
        config["rescale_betas_zero_snr"] = schedule.zero_terminal
    return kind(**config, **usual)
