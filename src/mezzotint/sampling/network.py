"""The network function that a solver evaluates: the family's denoiser with texts, sizes, first frame and guidance."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Literal, cast

import torch
from torch import Tensor

from mezzotint.diffusion import preconditioning
from mezzotint.diffusion.flow import FlowSchedule
from mezzotint.diffusion.parameterization import Parameterization
from mezzotint.diffusion.preconditioning import Scaling, ScalingName
from mezzotint.diffusion.schedule import Schedule
from mezzotint.families.base import ModelFamily
from mezzotint.sampling.guidance import (
    Branch,
    Images,
    apply_guidance,
    apply_threshold,
    concatenate,
    predict_all,
    zeros_like,
)
from mezzotint.sampling.requests import Request, Sampling, embed_prompts
from mezzotint.sampling.solvers import Network
from mezzotint.settings.sections.sample import FramingSettings, SampleSettings, ThresholdingSettings
from mezzotint.stages import Framing, Noised, TextEmbedding

Outputs = Callable[[Tensor, Tensor], Tensor]
"""(model input (B, C, …), model time () or (1,)) → the network's output for each branch of guidance, the last
for the texts, (n B, C, …)."""
Guide = Callable[[Tensor], Tensor]
"""Such an output → (B, C, …)."""


def build_network(
    family: ModelFamily, requests: Sequence[Request], sampling: Sampling, evaluates_at: Literal["timestep", "sigma"]
) -> Network:
    """The network function of a batch for a solver. Raises RecipeError E1220 for a guidance scale that the model does
    not support."""
    settings, form, schedule = sampling.settings, sampling.form, sampling.schedule.to(sampling.device)
    scale = sampling.guidance(requests[0])
    family.refuse_guidance(scale)
    images = join_images(requests, sampling.device)
    guides_images = bool(images) and family.guides_images and settings.image_guidance != 1.0
    is_guided = guides_images or (scale != family.no_guidance and not family.takes_guidance)
    text, negative = _texts(family, requests, sampling.device, settings)
    first_frame = join_first_frames(requests, sampling.device)
    predict = partial(
        predict_for_sampling, family, requests, settings.micro_conditioning,
        guidance=scale if family.takes_guidance else None, has_first_frame=first_frame is not None,
    )  # fmt: skip

    branches = [Branch(negative, images)] if is_guided else []
    branches = [*([branches[0].without_images()] if guides_images else []), *branches, Branch(text, images)]

    def outputs(model_input: Tensor, model_t: Tensor) -> Tensor:
        output = predict_all(predict, with_first_frame(model_input, first_frame), model_t, branches)
        # as in the pipelines: guidance of flow-matching models in float32, of others in the network's dtype
        return output.float() if isinstance(schedule, FlowSchedule) else output

    def guide(output: Tensor) -> Tensor:
        if not is_guided:
            return output
        return apply_guidance(
            output, lambda away, towards: family.guide(away, towards, scale), settings.guidance_rescale,
            image_scale=settings.image_guidance if guides_images else None,
        )  # fmt: skip

    if evaluates_at == "sigma":
        return CleanLatents(outputs, schedule, form, guide, settings.thresholding)

    def network(x_t: Tensor, t: Tensor) -> Tensor:
        t = t.reshape(1)
        output = outputs(*form.make_inputs(x_t, t, schedule))
        if form.in_sigma:
            output = torch.cat([form.as_velocity(part, x_t, t, schedule) for part in output.split(len(x_t))])
        return guide(output)

    return network


class CleanLatents:
    """D(x_σ, σ), the clean latents implied by a network's output at a noise level (Karras et al. 2022,
    arXiv:2206.00364, eq. 7), with guidance.

    A network on a discrete schedule is given the index of the nearest level of its table, and its input is scaled by
    that level, as Stability's `DiscreteDenoiser` does: levels between two entries go to one of them.
    """

    def __init__(
        self,
        outputs: Outputs,
        schedule: Schedule,
        form: Parameterization,
        guide: Guide,
        thresholding: ThresholdingSettings | None = None,
    ) -> None:
        self._outputs = outputs
        self._table = schedule.sigma.cpu()
        self._form = form
        self._guide = guide
        self._thresholding = thresholding or ThresholdingSettings()

    def __call__(self, x: Tensor, sigma: float) -> Tensor:
        """x_0, float32. x: (B, C, …) float32."""
        c_skip, c_out, c_in, c_noise = (factor.to(x.device) for factor in self._factors(sigma))
        output = self._outputs(x * c_in, c_noise).float()
        ratio = self._thresholding.ratio
        if ratio is None:
            return c_skip * x + c_out * self._guide(output)
        clean = [c_skip * x + c_out * part for part in output.split(len(x))]
        return self._guide(torch.cat([apply_threshold(x_0, ratio=ratio, most=self._thresholding.max) for x_0 in clean]))

    def _factors(self, sigma: float) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """c_skip, c_out, c_in, and the time input: ¼ ln σ, or the index of the nearest level."""
        level, kind = torch.tensor([sigma], dtype=torch.float32), self._form.prediction
        index = preconditioning.find_nearest(self._table, level)
        if not self._form.takes_log_sigma:
            level = self._table[index]
        if self._form.in_sigma:
            scaling = self._form.factors(level)
        elif kind == "x0":
            c_in = 1.0 / (level**2 + 1.0).sqrt()
            scaling = Scaling(torch.zeros_like(level), torch.ones_like(level), c_in, level)
        else:
            scaling = preconditioning.compute_scaling(cast(ScalingName, kind), level)
        return scaling.c_skip, scaling.c_out, scaling.c_in, self._form.model_t(level, index)


def predict_for_sampling(
    family: ModelFamily,
    requests: Sequence[Request],
    framing: FramingSettings,
    model_input: Tensor,
    model_t: Tensor,
    text: TextEmbedding,
    images: Images,
    *,
    guidance: float | None = None,
    has_first_frame: bool = False,
) -> Tensor:
    """The network's output while sampling, where x_0 and noise are not known separately. model_input: (N, C, …), of the
    requests, or for the negative texts first. guidance: for networks that take its scale as an input."""
    count, device = len(model_input), model_input.device
    noised = Noised(
        x_0=model_input, noise=model_input, x_t=model_input, model_input=model_input, model_t=model_t,
        level=model_t.float(),
        has_first_frame=torch.ones(count, dtype=torch.bool, device=device) if has_first_frame else None,
    )  # fmt: skip
    framed = _resolve_framing(requests, framing, count, device)
    if guidance is not None:
        framed = replace(framed, guidance=torch.full((count,), guidance, device=device))
    # a learned variance is not used
    condition = family.condition(text, None, framed)
    condition = replace(condition, images=images) if images else condition
    return family.predict(noised, condition)[:, : model_input.shape[1]]


def with_first_frame(x: Tensor, first_frame: Tensor | None) -> Tensor:
    """Latents of clips (B, C, f, h, w) with the given first frame (B, C, 1, h, w), if there is one."""
    return x if first_frame is None else torch.cat([first_frame, x[:, :, 1:]], dim=2)


def join_first_frames(requests: Sequence[Request], device: torch.device | str) -> Tensor | None:
    """(B, C, 1, h, w) float32, or None if the requests have none."""
    frames = [r.first_frame for r in requests if r.first_frame is not None]
    return torch.cat(frames).to(device, torch.float32) if frames else None


def join_images(requests: Sequence[Request], device: torch.device | str) -> dict[str, Tensor]:
    """The condition images of a batch by name, (B, C, h, w) float32."""
    return {
        name: torch.cat([request.images[name] for request in requests]).to(device, torch.float32)
        for name in requests[0].images
    }


def is_unconditional(family: ModelFamily, negative: str, settings: SampleSettings) -> bool:
    """Whether guidance moves away from zeros instead of from a negative prompt."""
    if settings.unconditional == "auto":
        return family.zeros_for_empty and not negative
    return settings.unconditional == "zeros"


def _resolve_framing(
    requests: Sequence[Request], framing: FramingSettings, count: int, device: torch.device
) -> Framing:
    """The sizes that models like SDXL are conditioned on: unless set, those of whole images of the requests' size.
    count: number of requests, or twice as many, those of the negative texts first."""
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
    if any(r.text is None or r.negative_text is None for r in requests):
        requests = embed_prompts(family, requests)
    texts = [r.text for r in requests if r.text is not None]
    negatives = [
        zeros_like(r.negative_text) if is_unconditional(family, r.negative, settings) else r.negative_text
        for r in requests
        if r.negative_text is not None
    ]
    return concatenate(texts).to(device), concatenate(negatives).to(device)
