"""From prompts to pictures: addressed noise, a solver's descent, guidance, and the family's decoder."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mezzotint import draws
from mezzotint.diffusion.noise import normal
from mezzotint.diffusion.parameterization import Parameterization
from mezzotint.diffusion.schedule import Schedule
from mezzotint.families.base import ModelFamily
from mezzotint.recipe.sections.sample import FramingSettings, SampleSettings, SolverName, Spacing
from mezzotint.sampling.denoiser import Denoiser
from mezzotint.sampling.descents import descend, require
from mezzotint.sampling.guidance import Predict, guided, together, zeros_like
from mezzotint.sampling.levels import kept, levels
from mezzotint.sampling.solvers import ONLY_BY_LEVELS, Solver
from mezzotint.shapes import Size
from mezzotint.stages import Framing, Noised, TextEmbedding


@dataclass(frozen=True, slots=True)
class Request:
    """One picture to draw. seed and index address its noise: the same pair gives the same noise at every step of a run
    and in every batch. text, negative_text: embeddings of one caption each, (1, L, D), made beforehand; None lets the
    family's text encoder make them. steps, guidance, solver: of this picture alone; None takes those of the call.
    start: latents (1, C, h, w) to begin with, see `Span`; None begins with noise."""

    prompt: str
    size: Size
    negative: str = ""
    seed: int = 0
    index: int = 0
    text: TextEmbedding | None = None
    negative_text: TextEmbedding | None = None
    steps: int | None = None
    guidance: float | None = None
    solver: SolverName | None = None
    start: Tensor | None = None


@dataclass(frozen=True, slots=True)
class Span:
    """Which part of the descent is drawn, told by shares of its levels of noise, the lowest ones.

    begin: the share that is gone through; what requests start with is put under the noise of its first level, unless it
    is `noised` already. leave: the share that is left to another model, which gets the latents with their noise. stage:
    0, or 1 for a second model, whose noise is another one.
    """

    begin: float = 1.0
    leave: float = 0.0
    noised: bool = False
    stage: int = 0


WHOLE = Span()


@dataclass(frozen=True, slots=True)
class Picture:
    """A drawn picture or clip. pixels: (H, W, 3) or (F, H, W, 3) uint8."""

    request: Request
    pixels: NDArray[np.uint8]


def embedded(family: ModelFamily, requests: Sequence[Request]) -> list[Request]:
    """The requests with their embeddings, kept on the CPU, so that they can be drawn when the text encoder is gone.

    Each text is encoded once. Requires the family's text encoder.
    """
    made: dict[str, TextEmbedding] = {}
    with torch.no_grad():
        for caption in dict.fromkeys(text for r in requests for text in (r.prompt, r.negative)):
            made[caption] = _moved(family.encode_text([caption]), "cpu")
    return [replace(r, text=made[r.prompt], negative_text=made[r.negative]) for r in requests]


def sample(
    family: ModelFamily,
    requests: Sequence[Request],
    *,
    schedule: Schedule,
    prediction: str | Parameterization,
    steps: int,
    guidance: float,
    solver: SolverName,
    device: torch.device | str,
    spacing: Spacing = "auto",
    guidance_rescale: float = 0.0,
    batch_size: int = 4,
    settings: SampleSettings | None = None,
    span: Span = WHOLE,
) -> Iterator[Picture]:
    """Draws the pictures, in the order of the requests.

    schedule, prediction: as the denoiser was trained; a kind alone is its usual `Parameterization`. guidance: scale of
    classifier-free guidance; 1 switches it off. spacing, guidance_rescale: see `recipe.sample`. batch_size: how many
    pictures of one kind (`alike`) that follow each other are drawn together at most. settings: what the other words
    leave open, levels, thresholding, the unconditional text, framing; None takes the defaults. Sizes are multiples of
    the family's grid. Requires the family's denoiser and VAE, and its text encoder for requests without embeddings.
    Raises RecipeError E1070 as `Solver` and `levels` do.
    """
    for some in alike(requests, batch_size):
        latents = sample_latents(
            family,
            some,
            schedule=schedule,
            prediction=prediction,
            steps=steps,
            guidance=guidance,
            solver=solver,
            device=device,
            spacing=spacing,
            guidance_rescale=guidance_rescale,
            settings=settings,
            span=span,
        )
        for request, pixels in zip(some, family.decode_media(latents), strict=True):
            yield Picture(request, as_bytes(pixels, request.size.frames))


def alike(requests: Sequence[Request], batch_size: int) -> Iterator[list[Request]]:
    """Requests that follow each other and can be drawn together: of one size, steps, guidance and solver, `batch_size`
    at most."""
    for _, group in groupby(requests, key=lambda r: (r.size, *_kind(r))):
        found = list(group)
        for first in range(0, len(found), batch_size):
            yield found[first : first + batch_size]


@torch.no_grad()
def sample_latents(
    family: ModelFamily,
    requests: Sequence[Request],
    *,
    schedule: Schedule,
    prediction: str | Parameterization,
    steps: int,
    guidance: float,
    solver: SolverName,
    device: torch.device | str,
    spacing: Spacing = "auto",
    guidance_rescale: float = 0.0,
    settings: SampleSettings | None = None,
    span: Span = WHOLE,
) -> Tensor:
    """Latents (B, C, h, w) float32 for requests of one size, steps, guidance and solver; with `span.leave` those of the
    level that is left, x_0 + σ ε. Parameters as for `sample`; no VAE is needed."""
    assert len(set(map(_kind, requests))) == 1, "requests of one kind"
    first = requests[0]
    steps, guidance = first.steps or steps, guidance if first.guidance is None else first.guidance
    solver = first.solver or solver
    settings = (settings or SampleSettings()).model_copy(update={"spacing": spacing})
    denoiser = family.parts()["denoiser"]
    was_training = denoiser.training
    denoiser.eval()
    try:
        form = Parameterization(prediction) if isinstance(prediction, str) else prediction
        text, negative = _texts(family, requests, device, settings)
        said = partial(_said, family, requests, settings.framing)
        why = _by_levels(solver, settings, first, span)
        if why:
            require(solver, why)
            network = partial(_both, said, text, negative if guidance != 1.0 else None)
            known = Denoiser(network, schedule, form, scale=guidance, rescale=guidance_rescale,
                             thresholding=settings.thresholding)  # fmt: skip
            visited = levels(settings, schedule, form.solved, steps)
            return _descend(family, requests, known, visited, solver, span, device)
        descent = Solver(solver, schedule, form.solved, steps=steps, device=device, spacing=spacing)
        x = descent.start(initial_noise(family, requests).to(device))
        predict = partial(_denoise, said, form, schedule.to(device))
        for number, t in enumerate(descent.timesteps):
            seen = descent.model_input(x, t)
            predicted = guided(predict, seen, t, text=text, negative=negative, scale=guidance, rescale=guidance_rescale)
            fresh = step_noise(family, requests, number).to(device) if descent.is_stochastic else None
            x = descent.step(predicted, t, x, fresh)
        return x
    finally:
        denoiser.train(was_training)


def require_solver(
    solver: SolverName, schedule: Schedule, prediction: str, settings: SampleSettings, spacing: Spacing = "auto"
) -> None:
    """Raises RecipeError E1070 when such a model cannot be drawn from in this way."""
    settings = settings.model_copy(update={"spacing": spacing})
    why = _by_levels(solver, settings, None, WHOLE)
    if why:
        require(solver, why)
        levels(settings, schedule, prediction, settings.steps)
    else:
        Solver(solver, schedule, prediction, steps=settings.steps, device="cpu", spacing=spacing)


def _by_levels(solver: SolverName, settings: SampleSettings, request: Request | None, span: Span) -> str:
    """What asks for a descent by levels instead of timesteps, in words; "" when nothing does."""
    asked = {
        f"sample.sigmas={settings.sigmas}": settings.sigmas != "schedule",
        "sample.spacing=stability": settings.spacing == "stability",
        "sample.thresholding": settings.thresholding.ratio is not None,
        "a second model (sample.refiner)": span.leave > 0 or span.stage > 0,
        "a picture to begin with (sample.image)": request is not None and request.start is not None,
        f"{solver}": solver in ONLY_BY_LEVELS,
    }
    return next((what for what, so in asked.items() if so), "")


def _descend(
    family: ModelFamily,
    requests: Sequence[Request],
    denoiser: Denoiser,
    descent: Tensor,
    solver: SolverName,
    span: Span,
    device: torch.device | str,
) -> Tensor:
    """From noise, or from what requests start with, down to where the span ends."""
    starts = [r.start for r in requests if r.start is not None]
    assert len(starts) in (0, len(requests)), "all requests start with something, or none"
    first = kept(descent, span.begin) if starts else 0
    last = kept(descent, span.leave)
    fresh = initial_noise(family, requests, span.stage).to(device)
    sigma = float(descent[first])
    if not starts:
        x = fresh * math.sqrt(1.0 + sigma**2)
    else:
        x = torch.cat(starts).to(device, torch.float32)
        x = x if span.noised else x + sigma * fresh

    def noise(number: int) -> Tensor:
        return step_noise(family, requests, number, span.stage).to(device)

    return descend(solver, x, descent[first:], denoiser, noise, last=max(0, last - first))


def _both(predict: Predict, text: TextEmbedding, negative: TextEmbedding | None, seen: Tensor, told: Tensor) -> Tensor:
    """The network's output for negative texts and texts at once; without negative texts for texts alone."""
    if negative is None:
        return predict(seen, told.expand(len(seen)), text)
    return predict(torch.cat((seen, seen)), told.expand(2 * len(seen)), together((negative, text)))


def initial_noise(family: ModelFamily, requests: Sequence[Request], stage: int = 0) -> Tensor:
    """(B, C, h, w), of clips (B, C, f, h, w), float32 standard normal noise, on the CPU, each picture's by its own
    address."""
    word = "sample-again" if stage else "sample"
    return _noise(family, requests, [draws.key(r.seed, word, r.index) for r in requests])


def step_noise(family: ModelFamily, requests: Sequence[Request], number: int, stage: int = 0) -> Tensor:
    """What a stochastic solver adds at its step `number` (from 0): as `initial_noise`."""
    word = "sample-step-again" if stage else "sample-step"
    return _noise(family, requests, [draws.key(r.seed, word, r.index, number) for r in requests])


def _noise(family: ModelFamily, requests: Sequence[Request], addresses: Sequence[int]) -> Tensor:
    size, grid = requests[0].size, family.grid
    assert all(r.size == size for r in requests), "requests of one size"
    assert size.width % grid.pixels == 0, size
    assert size.height % grid.pixels == 0, size
    keys = torch.from_numpy(np.array(addresses, dtype=np.uint64).view(np.int64))
    # rounded up: a clip of any number of frames is a part of what its latents make
    frames = () if size.frames == 1 else (-(-(size.frames - 1) // grid.frames) + 1,)
    return normal(keys, (grid.channels, *frames, size.height // grid.pixels, size.width // grid.pixels))


def _kind(request: Request) -> tuple[int | None, float | None, SolverName | None]:
    return request.steps, request.guidance, request.solver


def as_bytes(pixels: Tensor, frames: int = 1) -> NDArray[np.uint8]:
    """Pixels (3, H, W) or (3, F, H, W) in [−1, 1] → (H, W, 3) or (F, H, W, 3) uint8, rounded to the nearest. frames:
    of a clip, those that were asked for, where its latents make more."""
    levels = ((pixels.float() + 1.0) * 127.5).round().clamp(0, 255).movedim(0, -1)
    found: NDArray[np.uint8] = levels.to("cpu", torch.uint8).numpy()
    return found if found.ndim == 3 else found[:frames]


def _said(
    family: ModelFamily,
    requests: Sequence[Request],
    framing: FramingSettings,
    shown: Tensor,
    told: Tensor,
    text: TextEmbedding,
) -> Tensor:
    """What the family's network says while sampling, where there is no x_0 and no noise to tell apart."""
    seen = Noised(x_0=shown, noise=shown, x_t=shown, model_input=shown, model_t=told, level=told.float())
    framed = _framing(requests, framing, len(shown), shown.device)
    # a learnt variance is not asked for
    return family.predict(seen, family.condition(text, None, framed))[:, : shown.shape[1]]


def _denoise(
    said: Predict, form: Parameterization, schedule: Schedule, x_t: Tensor, t: Tensor, text: TextEmbedding
) -> Tensor:
    """The same in the kind that solvers of timesteps know."""
    shown, told = form.seen(x_t, t, schedule)
    return form.as_velocity(said(shown, told, text), x_t, t, schedule)


def _framing(requests: Sequence[Request], framing: FramingSettings, count: int, device: torch.device) -> Framing:
    """What models that know sizes are told: whole pictures of the requests' size, where nothing else is asked. count:
    theirs, or twice as many, those of the negative texts first."""
    size = requests[0].size

    def pair(first: int, second: int) -> Tensor:
        return torch.tensor([[first, second]], device=device).expand(count, 2)

    def sides(asked: tuple[int, int] | None) -> Tensor:
        width, height = asked or (size.width, size.height)
        return pair(height, width)

    negative = torch.arange(count, device=device) < count - len(requests)
    score = torch.where(negative, framing.negative_aesthetic_score, framing.aesthetic_score)
    crop = pair(*framing.crop_top_left)
    return Framing(sides(framing.original_size), crop, sides(framing.target_size), negative, score)


def _texts(
    family: ModelFamily, requests: Sequence[Request], device: torch.device | str, settings: SampleSettings
) -> tuple[TextEmbedding, TextEmbedding]:
    ready = [r if r.text is not None and r.negative_text is not None else embedded(family, [r])[0] for r in requests]
    texts = [r.text for r in ready if r.text is not None]
    negatives = [
        zeros_like(r.negative_text) if is_unconditional(family, r.negative, settings) else r.negative_text
        for r in ready
        if r.negative_text is not None
    ]
    return _moved(together(texts), device), _moved(together(negatives), device)


def is_unconditional(family: ModelFamily, negative: str, settings: SampleSettings) -> bool:
    """Whether guidance moves away from no text at all instead of from a negative prompt."""
    if settings.unconditional == "auto":
        return family.zeros_for_empty and not negative
    return settings.unconditional == "zeros"


def _moved(text: TextEmbedding, device: torch.device | str) -> TextEmbedding:
    return TextEmbedding(
        text.states.to(device),
        None if text.mask is None else text.mask.to(device),
        None if text.pooled is None else text.pooled.to(device),
    )
