"""What is drawn from a model: previews during training, and the verb `sample`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, NonNegativeFloat, PositiveInt, field_validator

from mezzotint.recipe.base import FREE, NamedPath, Section, Share, as_list
from mezzotint.recipe.sample_clip import ClipSampleSettings

Scales = Annotated[tuple[NonNegativeFloat, ...], Field(min_length=1), BeforeValidator(as_list)]
Texts = Annotated[tuple[str, ...], BeforeValidator(as_list)]

SolverName = Literal[
    "ddim", "ddpm", "euler", "euler-a", "heun", "lms", "pndm", "dpm2", "dpm++", "dpm++-sde", "deis", "unipc",
    "dpm++-single", "dpm2-a",
]  # fmt: skip
Spacing = Literal["auto", "leading", "trailing", "linspace", "library"]

SOLVER_CLASSES: dict[str, SolverName] = {
    "DDIMScheduler": "ddim",
    "DDPMScheduler": "ddpm",
    "EulerDiscreteScheduler": "euler",
    "EulerAncestralDiscreteScheduler": "euler-a",
    "HeunDiscreteScheduler": "heun",
    "LMSDiscreteScheduler": "lms",
    "PNDMScheduler": "pndm",
    "KDPM2DiscreteScheduler": "dpm2",
    "DPMSolverMultistepScheduler": "dpm++",
    "DEISMultistepScheduler": "deis",
    "UniPCMultistepScheduler": "unipc",
    "DPMSolverSinglestepScheduler": "dpm++-single",
    "KDPM2AncestralDiscreteScheduler": "dpm2-a",
}
"""diffusers' classes by our names for them; `sample.solver` takes either."""


def _short(value: Any) -> Any:
    """Our name for a class of diffusers; anything else as it is."""
    return SOLVER_CLASSES.get(value, value) if isinstance(value, str) else value


class SampleSettings(Section):
    """Prompts and how pictures are drawn from them. The same prompts and seed for the whole run, so that previews can
    be compared."""

    prompts: Annotated[Texts, FREE] = ()
    """One picture is drawn for each prompt. Empty takes the captions of the first four samples of the data set."""

    negative_prompt: Annotated[str, FREE] = ""
    """What guidance moves away from; usually empty."""

    size: Annotated[tuple[int, int] | None, FREE] = None
    """Width and height in pixels, multiples of 8; None takes `data.resolution` squared."""

    seed: Annotated[int, FREE] = 0
    """The seed of the pictures' noise; picture i is addressed by (seed, i). In a run -1 takes `run.seed`."""

    steps: Annotated[int, Field(ge=1, le=1000), FREE] = 20
    """Steps of the sampler; more is slower and smoother. `heun` and `dpm2` call the denoiser twice a step."""

    file: Annotated[NamedPath | None, FREE] = None
    """A file of prompts instead of `sample.prompts`: a `.txt` with one a line, or a `.json` with settings for all and
    for each (prompt, negative_prompt, seed, size, aspect_ratio, guidance, random_caption). It is read anew before each
    preview; one that cannot be used then leaves the last good one in force."""

    guidance: Annotated[Scales, FREE] = (7.5,)
    """Classifier-free guidance scale; 1 switches it off and halves the work. A list draws each prompt at each scale,
    side by side."""

    guidance_rescale: Annotated[Share, FREE] = 0.0
    """How far the guided output is brought back to the contrast of the unguided one, against overexposure (Lin et al.
    2023, arXiv:2305.08891, section 3.4); 0.7 is usual with zero terminal SNR, 0 leaves it."""

    solver: Annotated[SolverName, BeforeValidator(_short), FREE] = "ddim"
    """The sampler, by short name or by the name of diffusers' class: DDIM (Song et al. 2021), DDPM (Ho et al. 2020),
    Euler and Heun in sigma space (Karras et al. 2022), `euler-a` with fresh noise at each step, LMS, PNDM (Liu et al.
    2022), `dpm2` and `dpm2-a` with fresh noise, DPM-Solver++ (Lu et al. 2022), its stochastic form `dpm++-sde` and its
    single-step form `dpm++-single`, DEIS and UniPC."""

    spacing: Annotated[Spacing, FREE] = "auto"
    """Which timesteps are visited: `leading` as Stable Diffusion's own pipelines do, `trailing` from the very end,
    `linspace` evenly with both ends. `auto` is trailing for a schedule that ends in pure noise, else leading.
    `library` takes diffusers' class with all defaults that it has of itself, as Open-Sora-Plan draws: DDIM and DDPM
    then cut latents at −1 and 1, and PNDM begins with Runge–Kutta steps, nine more calls of the denoiser."""

    clip: ClipSampleSettings = ClipSampleSettings()
    """Clips, of models that draw them."""

    batch_size: Annotated[PositiveInt, FREE] = 4
    """How many pictures of one size are drawn together at most. The pictures are the same, up to rounding."""

    @field_validator("size")
    @classmethod
    def _fits(cls, value: tuple[int, int] | None) -> tuple[int, int] | None:
        if value is not None and (min(value) < 8 or value[0] % 8 or value[1] % 8):
            raise ValueError(f"sample.size is width and height in multiples of 8, got {value[0]} × {value[1]}")
        return value
