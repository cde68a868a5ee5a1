"""From prompts to images: addressed noise, a solver, the denoiser with guidance, and the family's decoder."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mezzotint.diffusion.flow import FlowSchedule
from mezzotint.diffusion.schedule import Schedule
from mezzotint.families.base import ModelFamily
from mezzotint.sampling.network import build_network, join_first_frames, with_first_frame
from mezzotint.sampling.requests import (
    GeneratedImage,
    Request,
    Sampling,
    Span,
    batch_requests,
    initial_noise,
    require_one_kind,
    step_noise,
)
from mezzotint.sampling.sigmas import compute_sigmas, find_first_of_share
from mezzotint.sampling.solvers import Solver, run_solver
from mezzotint.settings.families.base import is_denoiser
from mezzotint.settings.sections.sample import SampleSettings, SolverName

_ONLY_IN_SIGMA: frozenset[SolverName] = frozenset({"dpm++-2s-a", "lcm"})
"""Solvers that only `sigma_solvers` has."""


def sample(family: ModelFamily, requests: Sequence[Request], sampling: Sampling) -> Iterator[GeneratedImage]:
    """The images in the order of the requests, sampled in batches of at most the settings' batch size.

    Sizes are multiples of the family's grid. Requires the family's denoiser and VAE, and its text encoder for requests
    without embeddings. Raises RecipeError E1070, E1219 or E1220 for settings that the model does not support.
    """
    for batch in batch_requests(requests, sampling.settings.batch_size):
        latents = sample_latents(family, batch, sampling)
        for request, pixels in zip(batch, family.decode_media(latents), strict=True):
            yield GeneratedImage(request, as_bytes(pixels, request.size.frames))


@torch.no_grad()
def sample_latents(family: ModelFamily, requests: Sequence[Request], sampling: Sampling) -> Tensor:
    """Latents (B, C, h, w) float32 of one batch, see `batch_requests`; if a share is left to a refiner, those of the
    level where it starts, x_0 + σ ε. Raises what `sample` raises; needs no VAE."""
    require_one_kind(requests)
    stage = sampling.span.stage
    with _eval_mode(family):
        noise = initial_noise(family, requests, stage).to(sampling.device)
        starts = [r.start for r in requests if r.start is not None]
        assert len(starts) in (0, len(requests)), "all requests have a start, or none"
        name, steps = sampling.solver(requests[0]), sampling.steps(requests[0])
        solver = open_solver(sampling, name, steps, shape=noise.shape[1:], starts=bool(starts))
        network = build_network(family, requests, sampling, solver.evaluates_at)
        image = torch.cat(starts).to(sampling.device, torch.float32) if starts else None
        x = image if image is not None and sampling.span.is_noised else solver.initial_state(noise, image)

        def noise_of(number: int) -> Tensor:
            return step_noise(family, requests, number, stage).to(sampling.device)

        x = run_solver(solver, x, network, noise_of, sampling.on_step)
    return with_first_frame(x, join_first_frames(requests, sampling.device))


def check_solver(solver: SolverName, schedule: Schedule, prediction: str, settings: SampleSettings) -> None:
    """Raises RecipeError E1070, for flow-matching models E1219, if the model does not support the solver and
    settings."""
    open_solver(Sampling(schedule, prediction, "cpu", settings), solver, settings.steps, shape=(1, 64, 64))


def open_solver(
    sampling: Sampling, name: SolverName, steps: int, *, shape: Sequence[int], starts: bool = False
) -> Solver:
    """A new solver for one batch. shape: of one sample's latents. starts: whether requests start from latents. Raises
    RecipeError E1070, E1219."""
    # imported here: importing diffusers takes seconds
    from mezzotint.sampling import flow_solvers, sigma_solvers, timestep_solvers

    schedule, settings, span = sampling.schedule, sampling.settings, sampling.span
    if isinstance(schedule, FlowSchedule):
        flow_solvers.check(name, settings, starts=starts, has_refiner=span.has_refiner)
        return flow_solvers.open_solver(name, schedule, shape, steps=steps, device=sampling.device)
    prediction, reason = sampling.form.solver_prediction, _needs_sigmas(name, settings, starts, span)
    if not reason:
        return timestep_solvers.open_solver(
            name, schedule, prediction, steps=steps, device=sampling.device, spacing=settings.timestep_spacing
        )
    sigma_solvers.check(name, reason)
    sigmas = compute_sigmas(settings, schedule, prediction, steps)
    first = find_first_of_share(sigmas, span.strength) if starts else 0
    last = find_first_of_share(sigmas, span.refiner_share)
    return sigma_solvers.SigmaSolver(name, sigmas[first:], steps=max(0, last - first))


def _needs_sigmas(name: SolverName, settings: SampleSettings, starts: bool, span: Span) -> str:
    """The setting that needs a solver in σ instead of timesteps; "" if there is none."""
    reasons = {
        f"sample.sigmas={settings.sigmas}": settings.sigmas != "schedule",
        "sample.timestep_spacing=stability": settings.timestep_spacing == "stability",
        "sample.thresholding": settings.thresholding.ratio is not None,
        "a second model (sample.refiner)": span.has_refiner,
        "a start image (sample.image)": starts,
        f"{name}": name in _ONLY_IN_SIGMA,
    }
    return next((reason for reason, applies in reasons.items() if applies), "")


@contextmanager
def _eval_mode(family: ModelFamily) -> Iterator[None]:
    """Context with the denoisers in eval mode; their mode is restored afterwards."""
    were_training = [(part, part.training) for name, part in family.parts().items() if is_denoiser(name)]
    for denoiser, _ in were_training:
        denoiser.eval()
    try:
        yield
    finally:
        for denoiser, was_training in were_training:
            denoiser.train(was_training)


def as_bytes(pixels: Tensor, frames: int = 1) -> NDArray[np.uint8]:
    """Pixels (3, H, W) or (3, F, H, W) in [−1, 1] → (H, W, 3) or (F, H, W, 3) uint8, rounded to the nearest. frames:
    the requested number of a clip, whose latents may decode to more."""
    levels = ((pixels.float() + 1.0) * 127.5).round().clamp(0, 255).movedim(0, -1)
    image: NDArray[np.uint8] = levels.to("cpu", torch.uint8).numpy()
    return image if image.ndim == 3 else image[:frames]


def describe_non_finite(pixels: Tensor) -> str:
    """A sentence about decoded pixels that are not all finite, and why; "" if they are. It reads one value back from
    the device."""
    if bool(pixels.isfinite().all()):
        return ""
    return (
        "a generated image has values that are not finite and is black there; in half precision the autoencoder may "
        "overflow: set run.vae_dtype=fp32; if that does not help, the weights are damaged"
    )
