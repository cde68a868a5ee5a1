"""Our descent equals the stock pipeline's, for every solver, with and without guidance, from the same noise."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from diffusers.pipelines.stable_diffusion.pipeline_stable_diffusion import StableDiffusionPipeline
from diffusers.schedulers.scheduling_ddim import DDIMScheduler
from diffusers.schedulers.scheduling_dpmsolver_multistep import DPMSolverMultistepScheduler
from diffusers.schedulers.scheduling_euler_discrete import EulerDiscreteScheduler

from mezzotint.diffusion.prediction import target
from mezzotint.diffusion.schedule import Schedule
from mezzotint.families.sd import Family
from mezzotint.recipe.model import ModelSettings
from mezzotint.sampling.sample import Request, initial_noise, sample_latents
from mezzotint.sampling.solvers import Solver, SolverName
from mezzotint.shapes import Size

FOLDER = Path(__file__).parents[1] / "parity" / "data" / "diffusers" / "tiny_sd"
STOCK: dict[str, Any] = {"ddim": DDIMScheduler, "euler": EulerDiscreteScheduler, "dpm++": DPMSolverMultistepScheduler}
SOLVERS: tuple[SolverName, ...] = ("ddim", "euler", "dpm++")


@pytest.fixture(scope="module")
def family() -> Family:
    return Family.load(ModelSettings(path=FOLDER))


@pytest.fixture(scope="module")
def pipeline() -> Any:
    opened = StableDiffusionPipeline.from_pretrained(str(FOLDER), local_files_only=True)
    opened.set_progress_bar_config(disable=True)
    return opened


def _stock(pipeline: Any, solver: str, family: Family, requests: list[Request], scale: float, **config: Any) -> Any:
    told = json.loads((FOLDER / "scheduler" / "scheduler_config.json").read_text())
    pipeline.scheduler = STOCK[solver].from_config({**told, "timestep_spacing": "leading", **config})
    return pipeline(
        [r.prompt for r in requests],
        negative_prompt=[r.negative for r in requests] if scale != 1.0 else None,
        height=requests[0].size.height,
        width=requests[0].size.width,
        latents=initial_noise(family, requests),
        guidance_scale=scale,
        num_inference_steps=5,
        output_type="latent",
    ).images


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("scale", [1.0, 5.0])
def test_a_descent_equals_the_stock_pipelines(pipeline: Any, family: Family, solver: SolverName, scale: float) -> None:
    requests = [Request(text, Size(64, 48), "dark", 7, i) for i, text in enumerate(("a red circle", "a blue star"))]
    ours = sample_latents(
        family,
        requests,
        schedule=family.schedule,
        prediction="epsilon",
        steps=5,
        guidance=scale,
        solver=solver,
        device="cpu",
    )
    theirs = _stock(pipeline, solver, family, requests, scale)
    assert ours.shape == (2, 4, 6, 8)
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("solver", SOLVERS)
def test_zero_terminal_snr_starts_at_the_very_end(pipeline: Any, family: Family, solver: SolverName) -> None:
    schedule = family.schedule.rescaled_to_zero_terminal_snr()
    requests = [Request("a red circle", Size(64, 64))]
    ours = sample_latents(
        family, requests, schedule=schedule, prediction="v", steps=5, guidance=1.0, solver=solver, device="cpu"
    )
    theirs = _stock(
        pipeline,
        solver,
        family,
        requests,
        1.0,
        rescale_betas_zero_snr=True,
        timestep_spacing="trailing",
        prediction_type="v_prediction",
    )
    assert bool(ours.isfinite().all())
    assert float(Solver(solver, schedule, "v", steps=5, device="cpu").timesteps[0]) == 999
    torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("prediction", ["epsilon", "v", "x0"])
@pytest.mark.parametrize("terminal", [False, True])
def test_a_denoiser_that_knows_the_picture_is_led_to_it(solver: SolverName, prediction: str, terminal: bool) -> None:
    schedule = Schedule.scaled_linear()
    schedule = schedule.rescaled_to_zero_terminal_snr() if terminal else schedule
    picture = torch.randn(1, 4, 8, 8, generator=torch.Generator().manual_seed(0))
    descent = Solver(solver, schedule, prediction, steps=20, device="cpu")
    x = descent.start(torch.randn(1, 4, 8, 8, generator=torch.Generator().manual_seed(1)))
    for t in descent.timesteps:
        seen = descent.model_input(x, t)
        alpha_bar = schedule.alpha_bar[t.long()].reshape(1)
        noise = (seen - alpha_bar.sqrt() * picture) / (1 - alpha_bar).sqrt()
        x = descent.step(target(prediction, picture, noise, alpha_bar), t, x)
    # DDIM ends at the schedule's first entry, where √(1 − ᾱ) = 0.03 of the noise is left
    assert float((x - picture).abs().max()) < 0.15
