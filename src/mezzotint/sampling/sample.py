"""From prompts to pictures: addressed noise, a solver's descent, guidance, and the family's decoder."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mezzotint import draws
from mezzotint.diffusion.forms import Form
from mezzotint.diffusion.noise import normal
from mezzotint.diffusion.schedule import Schedule
from mezzotint.families.base import ModelFamily
from mezzotint.recipe.sample import SolverName, Spacing
from mezzotint.sampling.guidance import guided, together
from mezzotint.sampling.solvers import Solver
from mezzotint.shapes import Size
from mezzotint.stages import Framing, Noised, TextEmbedding


@dataclass(frozen=True, slots=True)
class Request:
    """One picture to draw. seed and index address its noise: the same pair gives the same noise at every step of a run
    and in every batch. text, negative_text: embeddings of one caption each, (1, L, D), made beforehand; None lets the
    family's text encoder make them. steps, guidance, solver: of this picture alone; None takes those of the call."""

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
    prediction: str | Form,
    steps: int,
    guidance: float,
    solver: SolverName,
    device: torch.device | str,
    spacing: Spacing = "auto",
    guidance_rescale: float = 0.0,
    batch_size: int = 4,
) -> Iterator[Picture]:
    """Draws the pictures, in the order of the requests.

    schedule, prediction: as the denoiser was trained; a kind alone is its usual `Form`. guidance: scale of
    classifier-free guidance; 1 switches it off. spacing, guidance_rescale: see `recipe.sample`. batch_size: how many
    pictures of one kind (`alike`) that follow each other are drawn together at most. Sizes are multiples of the
    family's grid. Requires the family's denoiser and VAE, and its text encoder for requests without embeddings.
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
    prediction: str | Form,
    steps: int,
    guidance: float,
    solver: SolverName,
    device: torch.device | str,
    spacing: Spacing = "auto",
    guidance_rescale: float = 0.0,
) -> Tensor:
    """Latents (B, C, h, w) float32 for requests of one size, steps, guidance and solver. Parameters as for `sample`;
    no VAE is needed."""
    assert len(set(map(_kind, requests))) == 1, "requests of one kind"
    first = requests[0]
    steps, guidance = first.steps or steps, guidance if first.guidance is None else first.guidance
    solver = first.solver or solver
    denoiser = family.parts()["denoiser"]
    was_training = denoiser.training
    denoiser.eval()
    try:
        form = Form(prediction) if isinstance(prediction, str) else prediction
        descent = Solver(solver, schedule, form.solved, steps=steps, device=device, spacing=spacing)
        text, negative = _texts(family, requests, device)
        x = descent.start(initial_noise(family, requests).to(device))
        predict = partial(_denoise, family, requests, form, schedule.to(device))
        for number, t in enumerate(descent.timesteps):
            seen = descent.model_input(x, t)
            predicted = guided(predict, seen, t, text=text, negative=negative, scale=guidance, rescale=guidance_rescale)
            fresh = step_noise(family, requests, number).to(device) if descent.is_stochastic else None
            x = descent.step(predicted, t, x, fresh)
        return x
    finally:
        denoiser.train(was_training)


def initial_noise(family: ModelFamily, requests: Sequence[Request]) -> Tensor:
    """(B, C, h, w), of clips (B, C, f, h, w), float32 standard normal noise, on the CPU, each picture's by its own
    address."""
    return _noise(family, requests, [draws.key(r.seed, "sample", r.index) for r in requests])


def step_noise(family: ModelFamily, requests: Sequence[Request], number: int) -> Tensor:
    """What a stochastic solver adds at its step `number` (from 0): as `initial_noise`."""
    return _noise(family, requests, [draws.key(r.seed, "sample-step", r.index, number) for r in requests])


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


def _denoise(
    family: ModelFamily,
    requests: Sequence[Request],
    form: Form,
    schedule: Schedule,
    x_t: Tensor,
    t: Tensor,
    text: TextEmbedding,
) -> Tensor:
    """The family's prediction while sampling, where there is no x_0 and no noise to tell apart; in the kind that the
    solver knows."""
    model_input, model_t = form.seen(x_t, t, schedule)
    seen = Noised(x_0=x_t, noise=x_t, x_t=x_t, model_input=model_input, model_t=model_t, level=t.float())
    told = family.condition(text, None, _whole(requests, len(x_t), x_t.device))
    said = family.predict(seen, told)[:, : x_t.shape[1]]  # a learnt variance is not asked for
    return form.as_velocity(said, x_t, t, schedule)


def _whole(requests: Sequence[Request], count: int, device: torch.device) -> Framing:
    """Whole pictures of the requests' size. count: theirs, or twice as many, those of the negative texts first."""
    size = requests[0].size
    sizes = torch.tensor([[size.height, size.width]], device=device).expand(count, 2)
    negative = torch.arange(count, device=device) < count - len(requests)
    return Framing(sizes, torch.zeros_like(sizes), sizes, negative)


def _texts(
    family: ModelFamily, requests: Sequence[Request], device: torch.device | str
) -> tuple[TextEmbedding, TextEmbedding]:
    ready = [r if r.text is not None and r.negative_text is not None else embedded(family, [r])[0] for r in requests]
    texts = [r.text for r in ready if r.text is not None]
    negatives = [r.negative_text for r in ready if r.negative_text is not None]
    return _moved(together(texts), device), _moved(together(negatives), device)


def _moved(text: TextEmbedding, device: torch.device | str) -> TextEmbedding:
    return TextEmbedding(
        text.states.to(device),
        None if text.mask is None else text.mask.to(device),
        None if text.pooled is None else text.pooled.to(device),
    )
