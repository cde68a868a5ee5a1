"""What is to be sampled: requests, how they are sampled, and the addressed noise of each."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
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
from mezzotint.sampling.solvers import OnStep
from mezzotint.settings.sections.sample import SampleSettings, SolverName
from mezzotint.shapes import Size
from mezzotint.stages import TextEmbedding


@dataclass(frozen=True, slots=True)
class Request:
    """One image or clip. seed and index address its noise: the same pair gives the same noise at every step of a run
    and in every batch. text, negative_text: embeddings of one caption each, (1, L, D); None uses the family's text
    encoder. steps, guidance, solver: only of this image; None takes those of the settings. start: latents (1, C, h, w)
    to start from, see `Span`; None starts from noise. first_frame: the given first latent frame of a clip,
    (1, C, 1, h, w); None samples it too. images: latents (1, C, h, w) of condition images by name, for models that take
    them; whole_images: the same images as a text encoder sees them, uint8 (3, H, W), in their order. line: the number
    of its prompt among all, by which it gets these images."""

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
    first_frame: Tensor | None = None
    images: Mapping[str, Tensor] = field(default_factory=dict)
    whole_images: Sequence[Tensor] = ()
    line: int = 0

    @property
    def images_hash(self) -> bytes:
        """Hashes of the images that the text encoder sees; empty if it sees none."""
        return b"".join(hashlib.sha256(image.numpy().tobytes()).digest() for image in self.whole_images)


@dataclass(frozen=True, slots=True)
class Span:
    """Which noise levels are sampled, as shares of all levels, counted from the lowest.

    strength: the share that is sampled when requests have a start; noise of the first of these levels is added to it
    unless it is_noised already. refiner_share: the share that is left to a second model, which gets noisy latents.
    stage: 0, or 1 for a second model, which has separate noise.
    """

    strength: float = 1.0
    refiner_share: float = 0.0
    is_noised: bool = False
    stage: int = 0

    @property
    def has_refiner(self) -> bool:
        """Whether two models share the work."""
        return self.refiner_share > 0 or self.stage > 0


@dataclass(frozen=True, slots=True)
class GeneratedImage:
    """A sampled image or clip. pixels: (H, W, 3) or (F, H, W, 3) uint8."""

    request: Request
    pixels: NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class Sampling:
    """How requests are sampled. schedule, parameterization: as the denoiser was trained; the name of a prediction is
    its usual `Parameterization`. settings: `recipe.sample`, of its guidance scales the first. on_step: called after
    each step."""

    schedule: Schedule
    parameterization: Parameterization | str
    device: torch.device | str
    settings: SampleSettings = field(default_factory=SampleSettings)
    span: Span = field(default_factory=Span)
    on_step: OnStep | None = None

    @property
    def form(self) -> Parameterization:
        """The parameterization."""
        name = self.parameterization
        return Parameterization(name) if isinstance(name, str) else name

    def steps(self, request: Request) -> int:
        """Steps of the request, or of the settings."""
        return request.steps or self.settings.steps

    def guidance(self, request: Request) -> float:
        """Guidance scale of the request, or the first of the settings."""
        return self.settings.guidance[0] if request.guidance is None else request.guidance

    def solver(self, request: Request) -> SolverName:
        """Solver of the request, or of the settings."""
        return request.solver or self.settings.solver


def embed_prompts(family: ModelFamily, requests: Sequence[Request]) -> list[Request]:
    """The requests with their embeddings on the CPU, so that they can be sampled without the text encoder, which this
    requires. Each text is encoded once with the same images."""
    texts: dict[tuple[str, bytes], TextEmbedding] = {}
    with torch.no_grad():
        for request in requests:
            for caption in (request.prompt, request.negative):
                if (key := (caption, request.images_hash)) not in texts:
                    texts[key] = family.encode_text_with_images([caption], [request.whole_images]).to("cpu")
    return [
        replace(r, text=texts[r.prompt, r.images_hash], negative_text=texts[r.negative, r.images_hash])
        for r in requests
    ]


def batch_requests(requests: Sequence[Request], batch_size: int) -> Iterator[list[Request]]:
    """Consecutive requests that can be sampled together, `batch_size` at most: of one size, steps, guidance and
    solver, and all or none with a first frame and with condition images of the same names and sizes."""
    for _, group in groupby(requests, key=_kind):
        members = list(group)
        for first in range(0, len(members), batch_size):
            yield members[first : first + batch_size]


def require_one_kind(requests: Sequence[Request]) -> None:
    """Asserts that these requests are a batch, see `batch_requests`."""
    assert len(set(map(_kind, requests))) == 1, "requests of one kind"


def initial_noise(family: ModelFamily, requests: Sequence[Request], stage: int = 0) -> Tensor:
    """(B, C, h, w), of clips (B, C, f, h, w), float32 standard normal noise on the CPU, at each request's address."""
    purpose = "sample-again" if stage else "sample"
    return _noise(family, requests, [draws.key(r.seed, purpose, r.index) for r in requests])


def step_noise(family: ModelFamily, requests: Sequence[Request], number: int, stage: int = 0) -> Tensor:
    """The noise that a stochastic solver adds at step `number` (from 0): as `initial_noise`."""
    purpose = "sample-step-again" if stage else "sample-step"
    return _noise(family, requests, [draws.key(r.seed, purpose, r.index, number) for r in requests])


def _noise(family: ModelFamily, requests: Sequence[Request], addresses: Sequence[int]) -> Tensor:
    size, grid = requests[0].size, family.grid
    assert size.width % grid.pixels == 0, size
    assert size.height % grid.pixels == 0, size
    keys = torch.from_numpy(np.array(addresses, dtype=np.uint64).view(np.int64))
    # rounded up: the latents decode to at least the requested frames
    frames = () if size.frames == 1 else (-(-(size.frames - 1) // grid.frames) + 1,)
    return normal(keys, (grid.channels, *frames, size.height // grid.pixels, size.width // grid.pixels))


def _kind(request: Request) -> tuple[object, ...]:
    images = request.first_frame is None, tuple((name, image.shape) for name, image in request.images.items())
    return request.size, request.steps, request.guidance, request.solver, images
