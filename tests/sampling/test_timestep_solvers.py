"""Latents equal those of diffusers' pipeline from the same noise, for every solver, with and without guidance."""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from diffusers.pipelines.stable_diffusion.pipeline_stable_diffusion import StableDiffusionPipeline

from mezzotint.diffusion.prediction import target
from mezzotint.diffusion.schedule import Schedule
from mezzotint.errors import RecipeError
from mezzotint.families.sd import Family
from mezzotint.sampling.requests import Request, Sampling, initial_noise, step_noise
from mezzotint.sampling.sample import sample_latents
from mezzotint.sampling.solvers import run_solver
from mezzotint.sampling.timestep_solvers import SCHEDULERS, open_solver
from mezzotint.settings.sections.model import ModelSettings
from mezzotint.settings.sections.sample import SOLVER_CLASSES, SampleSettings, SolverName, Spacing
from mezzotint.shapes import Size

STOCHASTIC = frozenset({"ddpm", "euler-a", "dpm++-sde", "dpm2-a"})
"""Solvers that add fresh noise at every step."""
STOCK: dict[str, tuple[str, str, dict[str, Any]]] = {
    "ddim": ("ddim", "DDIMScheduler", {}),
    "ddpm": ("ddpm", "DDPMScheduler", {}),
    "euler": ("euler_discrete", "EulerDiscreteScheduler", {}),
    "euler-a": ("euler_ancestral_discrete", "EulerAncestralDiscreteScheduler", {}),
    "heun": ("heun_discrete", "HeunDiscreteScheduler", {}),
    "lms": ("lms_discrete", "LMSDiscreteScheduler", {}),
    "pndm": ("pndm", "PNDMScheduler", {"skip_prk_steps": True}),
    "dpm2": ("k_dpm_2_discrete", "KDPM2DiscreteScheduler", {}),
    "dpm++": ("dpmsolver_multistep", "DPMSolverMultistepScheduler", {}),
    "dpm++-sde": ("dpmsolver_multistep", "DPMSolverMultistepScheduler", {"algorithm_type": "sde-dpmsolver++"}),
    "deis": ("deis_multistep", "DEISMultistepScheduler", {}),
    "unipc": ("unipc_multistep", "UniPCMultistepScheduler", {}),
    "dpm++-single": ("dpmsolver_singlestep", "DPMSolverSinglestepScheduler", {}),
    "dpm2-a": ("k_dpm_2_ancestral_discrete", "KDPM2AncestralDiscreteScheduler", {}),
}
STEPS = 5
SOLVERS = tuple(SCHEDULERS)
FROM_ZERO_SNR = tuple(name for name, entry in SCHEDULERS.items() if entry.from_zero_snr)


@pytest.fixture(scope="module")
def family(shallow_sd: Path) -> Family:
    return Family.of(ModelSettings(path=shallow_sd))


@pytest.fixture(scope="module")
def pipeline(shallow_sd: Path) -> Any:
    opened = StableDiffusionPipeline.from_pretrained(str(shallow_sd), local_files_only=True)
    opened.set_progress_bar_config(disable=True)
    return opened


@pytest.fixture
def stock(pipeline: Any, family: Family, shallow_sd: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The stock pipeline's latents. Where its scheduler draws noise, it is handed ours."""

    def draw(solver: str, requests: list[Request], scale: float, rescale: float = 0.0, **config: Any) -> Any:
        module, name, own = STOCK[solver]
        scheduling = importlib.import_module(f"diffusers.schedulers.scheduling_{module}")
        numbers = iter(range(1, 100, 2) if solver == "dpm2-a" else range(100))  # it draws at every second call
        if solver in STOCHASTIC:
            monkeypatch.setattr(
                scheduling, "randn_tensor", lambda *_, **__: step_noise(family, requests, next(numbers))
            )
        config_file = json.loads((shallow_sd / "scheduler" / "scheduler_config.json").read_text())
        kind = getattr(scheduling, name)
        pipeline.scheduler = kind.from_config({**config_file, "timestep_spacing": "leading", **own, **config})
        return pipeline(
            [r.prompt for r in requests],
            negative_prompt=[r.negative for r in requests] if scale != 1.0 else None,
            height=requests[0].size.height,
            width=requests[0].size.width,
            latents=initial_noise(family, requests),
            guidance_scale=scale,
            guidance_rescale=rescale,
            num_inference_steps=STEPS,
            output_type="latent",
        ).images

    return draw


def _requests() -> list[Request]:
    return [Request(text, Size(64, 48), "dark", 7, i) for i, text in enumerate(("a red circle", "a blue star"))]


@pytest.fixture
def ours(family: Family) -> Any:
    def draw(requests: list[Request], scale: float, solver: SolverName, **changed: Any) -> torch.Tensor:
        schedule, prediction = (changed.pop(name, getattr(family, name)) for name in ("schedule", "prediction"))
        settings = SampleSettings(steps=STEPS, guidance=(scale,), solver=solver, **changed)
        return sample_latents(family, requests, Sampling(schedule, prediction, "cpu", settings))

    return draw


def test_every_solver_has_a_stock_class_and_short_name() -> None:
    assert set(STOCK) == set(SOLVERS)
    for kind, name in SOLVER_CLASSES.items():
        assert STOCK[name][1] == kind
        assert SampleSettings(solver=kind).solver == name


@pytest.mark.parametrize(
    ("solver", "scale"), [*((solver, 5.0) for solver in SOLVERS), pytest.param("euler", 1.0, id="without-guidance")]
)
def test_latents_equal_the_stock_pipelines(stock: Any, ours: Any, solver: SolverName, scale: float) -> None:
    mine = ours(_requests(), scale, solver)
    assert mine.shape == (2, 4, 6, 8)
    torch.testing.assert_close(mine, stock(solver, _requests(), scale), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("spacing", ["trailing", "linspace"])
def test_timestep_spacing_equals_stock_schedulers(solver: SolverName, spacing: Spacing, shallow_sd: Path) -> None:
    module, name, own = STOCK[solver]
    config = json.loads((shallow_sd / "scheduler" / "scheduler_config.json").read_text())
    kind = getattr(importlib.import_module(f"diffusers.schedulers.scheduling_{module}"), name)
    scheduler = kind.from_config({**config, **own, "timestep_spacing": spacing})
    scheduler.set_timesteps(STEPS)
    mine = open_solver(solver, Schedule.scaled_linear(), "epsilon", steps=STEPS, device="cpu", spacing=spacing)
    assert float(mine.timesteps[0]) == 999
    torch.testing.assert_close(mine.timesteps, scheduler.timesteps, check_dtype=False)
    noise = torch.ones(1, 4, 2, 2)
    torch.testing.assert_close(mine.initial_state(noise), noise * scheduler.init_noise_sigma)


def test_rescaled_guidance_equals_the_stock_pipelines(stock: Any, ours: Any) -> None:
    mine = ours(_requests(), 7.5, "ddim", guidance_rescale=0.7)
    torch.testing.assert_close(mine, stock("ddim", _requests(), 7.5, 0.7), rtol=1e-4, atol=1e-4)
    assert float((mine - ours(_requests(), 7.5, "ddim")).abs().max()) > 1e-3


@pytest.mark.parametrize("solver", FROM_ZERO_SNR)
def test_zero_terminal_snr_starts_at_the_last_timestep(
    stock: Any, ours: Any, family: Family, solver: SolverName
) -> None:
    schedule = family.schedule.rescale_to_zero_terminal_snr()
    requests = [Request("a red circle", Size(64, 64))]
    mine = ours(requests, 1.0, solver, schedule=schedule, prediction="v")
    config = {"timestep_spacing": "trailing", "prediction_type": "v_prediction"}
    theirs = stock(solver, requests, 1.0, rescale_betas_zero_snr=True, **config)
    assert bool(mine.isfinite().all())
    assert float(open_solver(solver, schedule, "v", steps=5, device="cpu").timesteps[0]) == 999
    torch.testing.assert_close(mine, theirs, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("solver", [s for s in SOLVERS if s not in (*FROM_ZERO_SNR, "dpm++-single")])
def test_solvers_without_zero_snr_support_are_refused(solver: SolverName) -> None:
    schedule = Schedule.scaled_linear().rescale_to_zero_terminal_snr()
    with pytest.raises(RecipeError, match=r"pure noise; use one of ddim, .*sample.timestep_spacing=leading") as caught:
        open_solver(solver, schedule, "v", steps=5, device="cpu")
    assert caught.value.code == "E1070"
    stopping_short = open_solver(solver, schedule, "v", steps=5, device="cpu", spacing="leading")
    assert float(stopping_short.timesteps[0]) < 999
    assert torch.isfinite(stopping_short.initial_state(torch.ones(1))).all()


def _final_error(solver: SolverName, prediction: str, schedule: Schedule) -> float:
    """How far from the image a solver ends whose denoiser knows it."""
    image = torch.randn(1, 4, 8, 8, generator=torch.Generator().manual_seed(0))
    fresh = torch.Generator().manual_seed(2)
    solver_ = open_solver(solver, schedule, prediction, steps=20, device="cpu")
    x = solver_.initial_state(torch.randn(1, 4, 8, 8, generator=torch.Generator().manual_seed(1)))

    def perfect_denoiser(seen: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        at = _alpha_bar(schedule, t)
        return target(prediction, image, (seen - at.sqrt() * image) / (1 - at).sqrt(), at)

    x = run_solver(solver_, x, perfect_denoiser, lambda _: torch.randn(1, 4, 8, 8, generator=fresh))
    return float((x - image).abs().max())


def _alpha_bar(schedule: Schedule, t: torch.Tensor) -> torch.Tensor:
    """Of a timestep; dpm2 asks at some between two, where σ is interpolated on its logarithm."""
    low = int(t.floor()) if t.is_floating_point() else int(t)
    high = min(low + 1, schedule.num_timesteps - 1)
    share = float(t) - low
    if share == 0.0:
        return schedule.alpha_bar[low].reshape(1)
    log_sigma = torch.lerp(schedule.sigma[low].log(), schedule.sigma[high].log(), share)
    return (1 / (1 + (2 * log_sigma).exp())).reshape(1)


def _cases() -> Iterator[Any]:
    for solver in SOLVERS:
        for prediction in ("epsilon", "v", "x0"):
            for terminal in (False, True):
                knows_none = prediction == "x0" and solver in ("pndm", "dpm2", "dpm2-a")
                if knows_none or (terminal and solver not in FROM_ZERO_SNR):
                    continue
                yield pytest.param(solver, prediction, terminal, id=f"{solver}-{prediction}-{terminal}")


@pytest.mark.parametrize(("solver", "prediction", "terminal"), _cases())
def test_perfect_denoiser_converges_to_the_image(solver: SolverName, prediction: str, terminal: bool) -> None:
    schedule = Schedule.scaled_linear()
    schedule = schedule.rescale_to_zero_terminal_snr() if terminal else schedule
    # DDIM ends at the schedule's first entry, where √(1 − ᾱ) = 0.03 of the noise is left
    assert _final_error(solver, prediction, schedule) < 0.15


@pytest.mark.parametrize("solver", ["pndm", "dpm2", "dpm2-a"])
def test_solvers_without_x0_support_are_refused(solver: SolverName) -> None:
    with pytest.raises(RecipeError, match=f"{solver} needs a model that predicts epsilon or v"):
        open_solver(solver, Schedule.scaled_linear(), "x0", steps=5, device="cpu")


@pytest.mark.parametrize("steps", [4, 5])
def test_single_step_solver_causes_no_library_warning(steps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[str] = []
    scheduling = importlib.import_module("diffusers.schedulers.scheduling_dpmsolver_singlestep")
    monkeypatch.setattr(scheduling.logger, "warning", lambda text, *_: heard.append(text))
    for spacing in ("auto", "library"):
        open_solver("dpm++-single", Schedule.linear(), "epsilon", steps=steps, device="cpu", spacing=spacing)  # type: ignore[arg-type]
    assert heard == []


# --- sample.timestep_spacing=library: each class with its own defaults ----------------------------------------------

LIBRARY = {
    "ddim": ("ddim", "DDIMScheduler"),
    "euler": ("euler_discrete", "EulerDiscreteScheduler"),
    "ddpm": ("ddpm", "DDPMScheduler"),
    "dpm++": ("dpmsolver_multistep", "DPMSolverMultistepScheduler"),
    "dpm++-single": ("dpmsolver_singlestep", "DPMSolverSinglestepScheduler"),
    "pndm": ("pndm", "PNDMScheduler"),
    "heun": ("heun_discrete", "HeunDiscreteScheduler"),
    "euler-a": ("euler_ancestral_discrete", "EulerAncestralDiscreteScheduler"),
    "deis": ("deis_multistep", "DEISMultistepScheduler"),
    "dpm2-a": ("k_dpm_2_ancestral_discrete", "KDPM2AncestralDiscreteScheduler"),
    "lms": ("lms_discrete", "LMSDiscreteScheduler"),
}
"""Those that Open-Sora-Plan v1.1 samples with, and LMS."""


def fake_denoiser(x: torch.Tensor, t: Any) -> torch.Tensor:
    """A made-up denoiser."""
    return torch.tanh(1.7 * x.roll(1, -1)) * (1.0 + float(t) / 2000.0)


@pytest.mark.parametrize("name", LIBRARY)
def test_library_spacing_equals_the_class_defaults(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    scheduling = importlib.import_module(f"diffusers.schedulers.scheduling_{LIBRARY[name][0]}")
    stock = getattr(scheduling, LIBRARY[name][1])(beta_start=0.0001, beta_end=0.02)  # the default of eight of them
    stock.set_timesteps(6)
    ours = open_solver(name, Schedule.linear(), "epsilon", steps=6, device="cpu", spacing="library")  # type: ignore[arg-type]
    assert torch.equal(ours.timesteps, stock.timesteps)
    start = torch.randn(2, 4, 3, 4, 4, generator=torch.Generator().manual_seed(0))
    x, y = ours.initial_state(start), start * stock.init_noise_sigma
    for number, t in enumerate(stock.timesteps):
        noise = torch.randn(x.shape, generator=torch.Generator().manual_seed(number + 1))
        monkeypatch.setattr(scheduling, "randn_tensor", lambda *_, noise=noise, **__: noise, raising=False)
        added = []
        x = ours.step(number, x, fake_denoiser, lambda at, noise=noise, added=added: added.append(at) or noise)  # type: ignore[misc]
        assert added == ([number] if name in STOCHASTIC else [])
        y = stock.step(fake_denoiser(stock.scale_model_input(y, t), t), t, y, return_dict=False)[0]
        torch.testing.assert_close(x, y, rtol=1e-4, atol=1e-4)


def test_pndm_starts_with_runge_kutta_steps() -> None:
    solver = open_solver("pndm", Schedule.linear(), "epsilon", steps=50, device="cpu", spacing="library")
    assert len(solver.timesteps) == 59
    assert int(solver.timesteps[0]) == 980


def test_single_step_solver_never_starts_at_pure_noise() -> None:
    schedule = Schedule.linear().rescale_to_zero_terminal_snr()
    for spacing in ("auto", "leading", "library"):
        with pytest.raises(RecipeError, match="pure noise"):
            open_solver("dpm++-single", schedule, "v", steps=4, device="cpu", spacing=spacing)  # type: ignore[arg-type]
