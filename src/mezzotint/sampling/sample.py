"""From prompts to pictures: addressed noise, a solver's descent, guidance, and the family's decoder."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import groupby

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mezzotint import draws
from mezzotint.diffusion.flow import FlowSchedule
from mezzotint.diffusion.noise import normal
from mezzotint.diffusion.parameterization import Parameterization
from mezzotint.diffusion.schedule import Schedule
from mezzotint.families.base import ModelFamily
from mezzotint.recipe.families.base import is_denoiser
from mezzotint.recipe.sections.sample import FramingSettings, SampleSettings, SolverName
from mezzotint.sampling.denoiser import Denoiser
from mezzotint.sampling.flow import FlowSolver, require_on_path, require_plain
from mezzotint.sampling.guidance import Predict, both, guided, rescaled, together, zeros_like
from mezzotint.sampling.sigma_samplers import SigmaSampler, require
from mezzotint.sampling.sigmas import kept, sigmas_of
from mezzotint.sampling.solvers import ONLY_IN_SIGMA, Noise, Solver, Watch, descend
from mezzotint.shapes import Size
from mezzotint.stages import Framing, Noised, TextEmbedding


@dataclass(frozen=True, slots=True)
class Request:
    """One picture to draw. seed and index address its noise: the same pair gives the same noise at every step of a run
    and in every batch. text, negative_text: embeddings of one caption each, (1, L, D), made beforehand; None lets the
    family's text encoder make them. steps, guidance, solver: of this picture alone; None takes those of the call.
    start: latents (1, C, h, w) to begin with, see `Span`; None begins with noise. first: the first latent frame of a
    clip, (1, C, 1, h, w), which is given; None draws it, too."""

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
    first: Tensor | None = None


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


@dataclass(frozen=True, slots=True)
class Sampling:
    """How pictures are drawn. schedule, form: as the denoiser was trained; a kind alone is its usual
    `Parameterization`. settings:
    `recipe.sample`, of its scales of guidance the first. span: which part of the descent. watch: hears each step."""

    schedule: Schedule
    form: Parameterization | str
    device: torch.device | str
    settings: SampleSettings = field(default_factory=SampleSettings)
    span: Span = WHOLE
    watch: Watch | None = None


def embedded(family: ModelFamily, requests: Sequence[Request]) -> list[Request]:
    """The requests with their embeddings, kept on the CPU, so that they can be drawn when the text encoder is gone.

    Each text is encoded once. Requires the family's text encoder.
    """
    texts: dict[str, TextEmbedding] = {}
    with torch.no_grad():
        for caption in dict.fromkeys(text for r in requests for text in (r.prompt, r.negative)):
            texts[caption] = family.encode_text([caption]).to("cpu")
    return [replace(r, text=texts[r.prompt], negative_text=texts[r.negative]) for r in requests]


def sample(family: ModelFamily, requests: Sequence[Request], how: Sampling) -> Iterator[Picture]:
    """Draws the pictures, in the order of the requests.

    As many of one kind (`alike`) that follow each other are drawn together as the settings' batch size says. Sizes are
    multiples of the family's grid. Requires the family's denoiser and VAE, and its text encoder for requests without
    embeddings. Raises RecipeError E1070 as `Solver` and `sigmas_of` do.
    """
    for group in alike(requests, how.settings.batch_size):
        latents = sample_latents(family, group, how)
        for request, pixels in zip(group, family.decode_media(latents), strict=True):
            yield Picture(request, as_bytes(pixels, request.size.frames))


def alike(requests: Sequence[Request], batch_size: int) -> Iterator[list[Request]]:
    """Requests that follow each other and can be drawn together: of one size, steps, guidance and solver, `batch_size`
    at most."""
    for _, group in groupby(requests, key=lambda r: (r.size, *_kind(r))):
        members = list(group)
        for first in range(0, len(members), batch_size):
            yield members[first : first + batch_size]


@torch.no_grad()
def sample_latents(family: ModelFamily, requests: Sequence[Request], how: Sampling) -> Tensor:
    """Latents (B, C, h, w) float32 for requests of one size, steps, guidance and solver; with `span.leave` those of the
    level that is left, x_0 + σ ε. Raises as `sample`; no VAE is needed."""
    assert len(set(map(_kind, requests))) == 1, "requests of one kind"
    were_training = [(part, part.training) for name, part in family.parts().items() if is_denoiser(name)]
    for denoiser, _ in were_training:
        denoiser.eval()

    def noise(number: int) -> Tensor:
        return step_noise(family, requests, number, how.span.stage).to(how.device)

    try:
        fresh = initial_noise(family, requests, how.span.stage).to(how.device)
        if isinstance(how.schedule, FlowSchedule):
            return _descend_on_path(family, requests, how, how.schedule, fresh, noise)
        if _asks_for_sigmas(requests[0].solver or how.settings.solver, how.settings, requests[0], how.span):
            return _descend_in_sigma(family, requests, how, fresh, noise)
        return _descend_in_timesteps(family, requests, how, fresh, noise)
    finally:
        for denoiser, was_training in were_training:
            denoiser.train(was_training)


def require_solver(solver: SolverName, schedule: Schedule, prediction: str, settings: SampleSettings) -> None:
    """Raises RecipeError E1070, of models on straight paths E1219, when such a model cannot be drawn from in this
    way."""
    if isinstance(schedule, FlowSchedule):
        require_on_path(solver, "this model's path")
        require_plain(settings)
        return
    why = _asks_for_sigmas(solver, settings, None, WHOLE)
    if why:
        require(solver, why)
        sigmas_of(settings, schedule, prediction, settings.steps)
    else:
        Solver(solver, schedule, prediction, steps=settings.steps, device="cpu", spacing=settings.timestep_spacing)


def _descend_in_timesteps(
    family: ModelFamily, requests: Sequence[Request], how: Sampling, fresh: Tensor, noise: Noise
) -> Tensor:
    """From noise down the timesteps that a scheduler of diffusers visits."""
    steps, guidance, solver, form = _of_one_kind(requests[0], how)
    sampler = Solver(
        solver, how.schedule, form.solved, steps=steps, device=how.device, spacing=how.settings.timestep_spacing
    )
    text, negative = _texts(family, requests, how.device, how.settings)
    output_of = partial(_said, family, requests, how.settings.micro_conditioning)
    predict = partial(_denoise, output_of, form, how.schedule.to(how.device))

    def network(seen: Tensor, t: Tensor) -> Tensor:
        output = both(predict, seen, t, text, None if guidance == 1.0 else negative)
        return guided(output, scale=guidance, rescale=how.settings.guidance_rescale)

    return descend(sampler, sampler.start(fresh), network, noise, how.watch)


def _descend_in_sigma(
    family: ModelFamily, requests: Sequence[Request], how: Sampling, fresh: Tensor, noise: Noise
) -> Tensor:
    """From noise, or from what requests start with, down levels of noise to where the span ends."""
    settings, span = how.settings, how.span
    steps, guidance, solver, form = _of_one_kind(requests[0], how)
    require(solver, _asks_for_sigmas(solver, settings, requests[0], span))
    text, negative = _texts(family, requests, how.device, settings)
    predict = partial(_said, family, requests, settings.micro_conditioning)

    def output(seen: Tensor, t: Tensor) -> Tensor:
        return both(predict, seen, t, text, None if guidance == 1.0 else negative)

    network = Denoiser(
        output, how.schedule, form, scale=guidance, rescale=settings.guidance_rescale,
        thresholding=settings.thresholding,
    )  # fmt: skip
    visited = sigmas_of(settings, how.schedule, form.solved, steps)
    starts = [r.start for r in requests if r.start is not None]
    assert len(starts) in (0, len(requests)), "all requests start with something, or none"
    first = kept(visited, span.begin) if starts else 0
    sampler = SigmaSampler(solver, visited[first:], last=max(0, kept(visited, span.leave) - first))
    if not starts:
        return descend(sampler, sampler.start(fresh), network, noise, how.watch)
    x = torch.cat(starts).to(how.device, torch.float32)
    x = x if span.noised else x + float(visited[first]) * fresh
    return descend(sampler, x, network, noise, how.watch)


def _descend_on_path(
    family: ModelFamily, requests: Sequence[Request], how: Sampling, schedule: FlowSchedule, fresh: Tensor, noise: Noise
) -> Tensor:
    """From noise along a straight path, with the family's own guidance."""
    steps, scale, solver, _ = _of_one_kind(requests[0], how)
    has_start, span = any(r.start is not None for r in requests), how.span
    require_plain(how.settings, starts=has_start, has_span=span.leave > 0 or span.stage > 0)
    family.refuse_guidance(scale)
    text, negative = _texts(family, requests, how.device, how.settings)
    is_guided = scale != family.no_guidance and not family.tells_guidance
    firsts = [r.first.to(fresh) for r in requests if r.first is not None]
    first = torch.cat(firsts) if firsts else None
    own_scale = scale if family.tells_guidance else None
    predict = partial(
        _said, family, requests, how.settings.micro_conditioning, guidance=own_scale, is_begun=first is not None
    )
    sampler = FlowSolver(solver, schedule, fresh.shape[1:], steps=steps, device=how.device)

    def network(x: Tensor, t: Tensor) -> Tensor:
        output = both(predict, _begun(x, first), t, text, negative if is_guided else None).float()
        if not is_guided:
            return output
        away, towards = output.chunk(2)
        pushed, share = family.guide(away, towards, scale), how.settings.guidance_rescale
        return rescaled(pushed, towards, share=share) if share else pushed

    return _begun(descend(sampler, fresh, network, noise, how.watch), first)


def _begun(x: Tensor, first: Tensor | None) -> Tensor:
    """Clips with the first latent frame that is given."""
    return x if first is None else torch.cat([first, x[:, :, 1:]], dim=2)


def _of_one_kind(first: Request, how: Sampling) -> tuple[int, float, SolverName, Parameterization]:
    """Steps, guidance and solver of requests of one kind, or else those of the settings; and the form."""
    settings = how.settings
    guidance = settings.guidance[0] if first.guidance is None else first.guidance
    form = Parameterization(how.form) if isinstance(how.form, str) else how.form
    return first.steps or settings.steps, guidance, first.solver or settings.solver, form


def _asks_for_sigmas(solver: SolverName, settings: SampleSettings, request: Request | None, span: Span) -> str:
    """What asks for a descent by levels instead of timesteps, in words; "" when nothing does."""
    reasons = {
        f"sample.sigmas={settings.sigmas}": settings.sigmas != "schedule",
        "sample.timestep_spacing=stability": settings.timestep_spacing == "stability",
        "sample.thresholding": settings.thresholding.ratio is not None,
        "a second model (sample.refiner)": span.leave > 0 or span.stage > 0,
        "a picture to begin with (sample.image)": request is not None and request.start is not None,
        f"{solver}": solver in ONLY_IN_SIGMA,
    }
    return next((what for what, so in reasons.items() if so), "")


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


def _kind(request: Request) -> tuple[int | None, float | None, SolverName | None, bool]:
    return request.steps, request.guidance, request.solver, request.first is None


def as_bytes(pixels: Tensor, frames: int = 1) -> NDArray[np.uint8]:
    """Pixels (3, H, W) or (3, F, H, W) in [−1, 1] → (H, W, 3) or (F, H, W, 3) uint8, rounded to the nearest. frames:
    of a clip, those that were asked for, where its latents make more."""
    levels = ((pixels.float() + 1.0) * 127.5).round().clamp(0, 255).movedim(0, -1)
    picture: NDArray[np.uint8] = levels.to("cpu", torch.uint8).numpy()
    return picture if picture.ndim == 3 else picture[:frames]


def _said(
    family: ModelFamily,
    requests: Sequence[Request],
    framing: FramingSettings,
    shown: Tensor,
    model_t: Tensor,
    text: TextEmbedding,
    guidance: float | None = None,
    *,
    is_begun: bool = False,
) -> Tensor:
    """What the family's network says while sampling, where there is no x_0 and no noise to tell apart. guidance: of
    networks that are told it. is_begun: whether clips have their first frame."""
    seen = Noised(x_0=shown, noise=shown, x_t=shown, model_input=shown, model_t=model_t, level=model_t.float())
    if is_begun:
        seen = replace(seen, begun=torch.ones(len(shown), dtype=torch.bool, device=shown.device))
    framed = _framing(requests, framing, len(shown), shown.device)
    if guidance is not None:
        framed = replace(framed, guidance=torch.full((len(shown),), guidance, device=shown.device))
    # a learnt variance is not asked for
    return family.predict(seen, family.condition(text, None, framed))[:, : shown.shape[1]]


def _denoise(
    predict: Predict, form: Parameterization, schedule: Schedule, x_t: Tensor, t: Tensor, text: TextEmbedding
) -> Tensor:
    """The same in the kind that solvers of timesteps know."""
    shown, model_t = form.seen(x_t, t, schedule)
    return form.as_velocity(predict(shown, model_t, text), x_t, t, schedule)


def _framing(requests: Sequence[Request], framing: FramingSettings, count: int, device: torch.device) -> Framing:
    """What models that know sizes are told: whole pictures of the requests' size, where nothing else is asked. count:
    theirs, or twice as many, those of the negative texts first."""
    size = requests[0].size

    def pair(first: int, second: int) -> Tensor:
        return torch.tensor([[first, second]], device=device).expand(count, 2)

    def sides(framed: tuple[int, int] | None) -> Tensor:
        width, height = framed or (size.width, size.height)
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
    return together(texts).to(device), together(negatives).to(device)


def is_unconditional(family: ModelFamily, negative: str, settings: SampleSettings) -> bool:
    """Whether guidance moves away from no text at all instead of from a negative prompt."""
    if settings.unconditional == "auto":
        return family.zeros_for_empty and not negative
    return settings.unconditional == "zeros"
