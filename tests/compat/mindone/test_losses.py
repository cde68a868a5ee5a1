"""The loss that a YAML of MindONE's trains: every scaling with every weighting, kind of loss, source of levels and γ,
from the file to the number, compared with Stability's formula written out in float64:

    D = c_skip x_σ + c_out F,   x_σ = x_0 + σ ε,   loss = mean of w |D − x_0|^p,   w ← min(w, γ)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import product
from pathlib import Path
from types import MappingProxyType

import numpy as np
import pytest
import torch
from torch import Tensor

from mezzotint.compat.mindone.dialect import SHIPPED
from mezzotint.diffusion import noise
from mezzotint.diffusion.objective import Objective, StepDraws
from mezzotint.diffusion.schedule import Schedule
from mezzotint.settings.reading.translation import Launched
from mezzotint.settings.recipe import Recipe
from mezzotint.tasks.reading import foreign

SIGMA_DATA = 0.5
Formula = Callable[[Tensor], Tensor]
SCALINGS: Mapping[str, tuple[Formula, Formula]] = MappingProxyType(
    {
        "EpsScaling": (torch.ones_like, lambda s: -s),
        "EpsScaling2": (torch.ones_like, lambda s: -s),
        "VScaling": (lambda s: 1 / (s**2 + 1), lambda s: -s / (s**2 + 1).sqrt()),
        "VScalingWithEDMcNoise": (lambda s: 1 / (s**2 + 1), lambda s: -s / (s**2 + 1).sqrt()),
        "EDMScaling": (
            lambda s: SIGMA_DATA**2 / (s**2 + SIGMA_DATA**2),
            lambda s: s * SIGMA_DATA / (s**2 + SIGMA_DATA**2).sqrt(),
        ),
    }
)
"""c_skip and c_out of σ."""
WEIGHTINGS: Mapping[str, Formula] = MappingProxyType(
    {
        "UnitWeighting": torch.ones_like,
        "EpsWeighting": lambda s: s**-2,
        "VWeighting": lambda s: (s**2 + 1) / s**2,
        "EDMWeighting": lambda s: (s**2 + SIGMA_DATA**2) / (s * SIGMA_DATA) ** 2,
    }
)
"""w of σ."""
TELLS_SIGMA = ("VScalingWithEDMcNoise", "EDMScaling")
TIMESTEPS = torch.tensor([0, 1, 20, 200, 500, 800, 999])
PLAIN = (SHIPPED / "sd_xl_base_finetune_910b.yaml").read_text("utf-8")

ROUNDINGS = 64
"""Between the noise level and the loss are about thirty operations in float32, a few of them with a square or a
difference of numbers of one size, which count double; twice that, in units of 2⁻²⁴, is allowed."""


def recipe_of(scaling: str, weighting: str, kind: str, *words: str, is_free: bool) -> Recipe:
    """The recipe of a command with such classes, in the current folder."""
    text = PLAIN.replace("EpsScaling", scaling).replace("EpsWeighting", weighting).replace("type: l2", f"type: {kind}")
    if scaling in TELLS_SIGMA:
        text = text.replace("        num_idx: 1000\n        weighting", "        weighting", 1)
        text = text.replace("denoiser.DiscreteDenoiser", "denoiser.Denoiser")
        start = text.index("        discretization_config")  # of the denoiser, which comes first
        text = text[:start] + text[text.index("\n\n", start) :]
    if is_free:
        start = text.index("      target: gm.modules.diffusionmodules.sigma_sampling")
        sampler = "      target: gm.modules.diffusionmodules.sigma_sampling.EDMSampling"
        text = text[:start] + sampler + text[text.index("\n\n", start) :]
    Path("mine.yaml").write_text(text)
    line = ["python", "train.py", "--config=mine.yaml", "--data_path=images", *words]
    return foreign.read_command_line("mindone-sdxl", line, (), Launched()).recipe


def losses(recipe: Recipe, message: Tensor, x_0: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """(the loss of each sample, σ, ε), in float64 as the step has them."""
    assert recipe.model.prediction is not None
    objective = Objective(recipe.objective, Schedule.scaled_linear(), recipe.model.prediction)
    count = len(x_0)
    draws = StepDraws.at(3, 0, np.arange(count), "cpu")
    if recipe.objective.noise_levels == "log-normal":
        noised = objective.noise(x_0, draws)
        sigma = noised.level.double()
    else:
        noised = objective.noise_at(x_0, draws, TIMESTEPS)
        alpha_bar = objective.schedule.alpha_bar[TIMESTEPS].double()
        sigma = ((1 - alpha_bar) / alpha_bar).sqrt()
    loss = objective.loss(message, noised, torch.ones(count))
    return loss.per_sample.double() * loss.weight.double(), sigma, noised.noise.double()


@pytest.mark.slow
@pytest.mark.parametrize(("scaling", "weighting", "kind"), list(product(SCALINGS, WEIGHTINGS, ("l2", "l1"))))
def test_command_trains_the_loss_of_its_classes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scaling: str, weighting: str, kind: str
) -> None:
    monkeypatch.chdir(tmp_path)
    output, x_0 = (noise.normal(torch.arange(len(TIMESTEPS)) + 100 * n, (4, 3, 3)) for n in (1, 2))
    for is_free, gamma in product((False, True) if scaling in TELLS_SIGMA else (False,), (None, 0.5, 5.0, 20.0)):
        words = () if gamma is None else (f"--snr_gamma={gamma}",)
        recipe = recipe_of(scaling, weighting, kind, *words, is_free=is_free)
        assert recipe.objective.noise_levels == ("log-normal" if is_free else "timesteps")
        losses_, sigma, eps = losses(recipe, output, x_0)
        c_skip, c_out = (of(sigma).view(-1, 1, 1, 1) for of in SCALINGS[scaling])
        w = WEIGHTINGS[weighting](sigma)
        w = w if gamma is None else w.clamp_max(gamma)
        denoised = c_skip * (x_0.double() + sigma.view(-1, 1, 1, 1) * eps) + c_out * output.double()
        error = (denoised - x_0.double()).abs() ** (2 if kind == "l2" else 1)
        expected = w * error.flatten(1).mean(1)
        torch.testing.assert_close(losses_, expected, rtol=ROUNDINGS * 2**-24, atol=0.0)
