"""What is drawn from a model: previews during training, and the verb `sample`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Any, Literal, get_args

from pydantic import (
    BeforeValidator,
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    WithJsonSchema,
    field_validator,
    model_validator,
)

from mezzotint.settings.base import FREE, InputPath, ModelPath, Section, Share, as_list

Scales = Annotated[tuple[NonNegativeFloat, ...], Field(min_length=1), BeforeValidator(as_list)]
Texts = Annotated[tuple[str, ...], BeforeValidator(as_list)]

SolverName = Literal[
    "ddim", "ddpm", "euler", "euler-a", "heun", "lms", "pndm", "dpm2", "dpm2-a", "dpm++", "dpm++-sde", "dpm++-single",
    "dpm++-2s-a", "deis", "unipc", "lcm",
]  # fmt: skip
Spacing = Literal["auto", "leading", "trailing", "linspace", "stability", "library"]
SigmaChoice = Literal["schedule", "karras", "edm"]

SDXL_SIZES: dict[str, tuple[int, int]] = {
    "0.5": (704, 1408), "0.52": (704, 1344), "0.57": (768, 1344), "0.6": (768, 1280), "0.68": (832, 1216),
    "0.72": (832, 1152), "0.78": (896, 1152), "0.82": (896, 1088), "0.88": (960, 1088), "0.94": (960, 1024),
    "1.0": (1024, 1024), "1.0_768": (768, 768), "1.0_512": (512, 512), "1.07": (1024, 960), "1.13": (1088, 960),
    "1.21": (1088, 896), "1.29": (1152, 896), "1.38": (1152, 832), "1.46": (1216, 832), "1.67": (1280, 768),
    "1.75": (1344, 768), "1.91": (1344, 704), "2.0": (1408, 704), "2.09": (1472, 704), "2.4": (1536, 640),
    "2.5": (1600, 640), "2.89": (1664, 576), "3.0": (1728, 576),
}  # fmt: skip
"""SDXL's sizes, width and height, by Stability's and MindONE's names for them: width over height. `sample.size` takes
`sdxl-` and the name."""

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


_SOLVER_NAMES: dict[str, SolverName] = {
    "euler-ancestral": "euler-a",
    "k-euler": "euler",
    "k-euler-a": "euler-a",
    "k-lms": "lms",
    "k-dpm-2": "dpm2",
    "k-dpm-2-a": "dpm2-a",
    "dpm-2": "dpm2",
    "dpm-2-a": "dpm2-a",
    "dpm-2-ancestral": "dpm2-a",
    "dpm2-ancestral": "dpm2-a",
    "dpm++-2m": "dpm++",
    "dpmpp-2m": "dpm++",
    "dpmsolver++": "dpm++",
    "dpm++-2m-sde": "dpm++-sde",
    "dpmpp-2m-sde": "dpm++-sde",
    "dpmpp-2s-ancestral": "dpm++-2s-a",
    "plms": "pndm",
    "uni-pc": "unipc",
}
"""Names of A1111, ComfyUI and kohya for solvers, in small letters with hyphens; those of ours are not repeated."""


def solver_named(value: Any) -> Any:
    """Our name for a class of diffusers, or for a solver as user interfaces call it; anything else as it is."""
    if not isinstance(value, str):
        return value
    spelled = re.sub(r"[\s_]+", "-", value.strip().lower())
    known = spelled if spelled in get_args(SolverName) else _SOLVER_NAMES.get(spelled)
    return SOLVER_CLASSES.get(value, known or value)


def _parted(values: Any) -> Any:
    """`solver: DPM++ 2M Karras` as a solver and its levels of noise."""
    name = values.get("solver") if isinstance(values, dict) else None
    match = re.fullmatch(r"(.+?)[\s_-]+karras", name.strip(), re.IGNORECASE) if isinstance(name, str) else None
    if match is None or solver_named(match[1]) not in get_args(SolverName):
        return values
    return {"sigmas": "karras", **values, "solver": solver_named(match[1])}


def size_named(value: Any) -> Any:
    """The width and height that a name stands for, such as `sdxl-1.46`; anything else as it is. Raises ValueError for
    a name that is not known."""
    if not isinstance(value, str) or not value.startswith("sdxl-"):
        return value
    name = value.removeprefix("sdxl-")
    if name not in SDXL_SIZES:
        known = ", ".join(f"sdxl-{known}" for known in SDXL_SIZES)
        raise ValueError(f"no size is called {value}; there are {known}")
    return SDXL_SIZES[name]


_SIZE_SCHEMA = WithJsonSchema(
    {
        "anyOf": [
            {"type": "array", "items": {"type": "integer", "minimum": 1}, "minItems": 2, "maxItems": 2},
            {"enum": [f"sdxl-{name}" for name in SDXL_SIZES]},
        ]
    }
)
_Side = Annotated[int, Field(gt=0, le=10**5)]
Pair = Annotated[tuple[_Side, _Side], BeforeValidator(size_named), _SIZE_SCHEMA]
"""Width and height, or a name for them."""


Codec = Literal["h264", "mpeg4"]


class ClipSampleSettings(Section):
    """Clips of models that draw them (families such as `wan` and `ltx`). Each is an .mp4, and a strip of its frames on
    the contact sheet."""

    frames: Annotated[Annotated[int, Field(gt=0, le=10**5)] | None, FREE] = None
    """How many frames are drawn; 4k + 1 wastes none (17, 65, 221). 1 draws pictures. None is as many as are trained
    (`data.clips.frames`), and of a model alone as many as its configuration was made for."""

    rate: Annotated[Annotated[float, Field(gt=0.0, le=240.0)], FREE] = 24.0
    """Frames a second of the files."""

    codec: Annotated[Codec, FREE] = "h264"
    """How they are encoded: `h264` plays everywhere; `mpeg4`, the older MPEG-4 part 2, where this PyAV has no encoder
    for it. The verb says so and takes the other when the one that is asked for is not there."""

    quality: Annotated[Annotated[int, Field(ge=1, le=31)], FREE] = 10
    """How much is lost: 1 nearly nothing, 31 most."""

    first_frame: Annotated[InputPath | None, FREE] = None
    """A picture that every clip begins with, made to cover its size and cut in the middle: image to video, of families
    `ltx`, and `wan` with Wan 2.2 TI2V 5B. Of previews, too."""


class ThresholdingSettings(Section):
    """Dynamic thresholding (Saharia et al. 2022, arXiv:2205.11487, section 2.3): what the denoiser takes the picture to
    be is held within bounds before guidance, each text's on its own. Bounds are those of the model's latents."""

    ratio: Annotated[Share | None, FREE] = None
    """The share of numbers that the bound leaves alone, such as 0.995: it is that quantile of their sizes, not below 1
    and not above `max`; numbers beyond it are cut, and all are divided by it. null leaves everything as it is."""

    max: Annotated[float, Field(ge=1.0), FREE] = 1.0
    """The largest bound. 1 is a plain cut at −1 and 1."""


class RefinerSettings(Section):
    """A second model that draws the end of the descent, as SDXL's refiner does. Of the verb `sample`; the previews of a
    run are drawn without it."""

    path: Annotated[ModelPath | None, FREE] = None
    """The second model: a folder or a file, with the same latents. It is told the same prompts, and negative prompts by
    its text encoder. null draws without one."""

    strength: Annotated[Share, FREE] = 0.15
    """Its share of the levels of noise, the lowest ones."""

    finish: Annotated[bool, FREE] = True
    """The first model stops where the second begins, which goes on from that noise. false: the first draws to the end,
    and the second begins with new noise on its picture."""

    guidance: Annotated[NonNegativeFloat, FREE] = 5.0
    """Its guidance scale."""


class FramingSettings(Section):
    """What models are told that know sizes (SDXL): a picture of which size the drawn one is a part of."""

    original_size: Annotated[Pair | None, FREE] = None
    """Width and height of the whole picture; null is the size drawn. Smaller ones make it look as if enlarged."""

    target_size: Annotated[Pair | None, FREE] = None
    """Width and height after cropping; null is the size drawn."""

    crop_top_left: Annotated[tuple[NonNegativeInt, NonNegativeInt], FREE] = (0, 0)
    """Where the crop begins, top and left. Above 0, things are cut off at the edges."""

    aesthetic_score: Annotated[float, FREE] = 6.0
    """What SDXL's refiner is told of the picture's beauty."""

    negative_aesthetic_score: Annotated[float, FREE] = 2.5
    """The same, of what guidance moves away from."""


class SampleSettings(Section):
    """Prompts and how pictures are drawn from them. The same prompts and seed for the whole run, so that previews can
    be compared."""

    prompts: Annotated[Texts, FREE] = ()
    """One picture is drawn for each prompt. Empty takes the first four captions of the data set that differ."""

    negative_prompt: Annotated[str, FREE] = ""
    """What guidance moves away from; usually empty."""

    size: Annotated[Pair | None, FREE] = None
    """Width and height in pixels, multiples of 8, or one of SDXL's sizes by name, from `sdxl-0.5` to `sdxl-3.0`; None
    takes `data.resolution` squared, and for previews of captions the size of the bucket that the caption's picture is
    trained in."""

    seed: Annotated[int, FREE] = 0
    """The seed of the pictures' noise; picture i is addressed by (seed, i). -1 is a new one, which is printed: of the
    verb `sample` another one at each call, of a run one for all its previews, kept when it goes on."""

    steps: Annotated[int, Field(ge=1, le=1000), FREE] = 20
    """Steps of the sampler; more is slower and smoother. `heun`, `dpm2` and `dpm++-2s-a` call the denoiser twice a
    step. Families have defaults of their own, and so have distilled models: FLUX.1-schnell and FLUX.2 Klein 4,
    Z-Image-Turbo 8."""

    prompt_file: Annotated[InputPath | None, FREE] = None
    """A file of prompts instead of `sample.prompts`: a `.txt` with one a line, or a `.json` with settings for all and
    for each (prompt, negative_prompt, seed, size, aspect_ratio, guidance, random_caption). It is read anew before each
    preview; one that cannot be used then leaves the last good one in force."""

    guidance: Annotated[Scales, FREE] = (7.5,)
    """Classifier-free guidance scale; 1 switches it off and halves the work (for Z-Image 0 does). A list samples each
    prompt at each scale, side by side. Families have defaults of their own; distilled models use no guidance."""

    guidance_rescale: Annotated[Share, FREE] = 0.0
    """How far the guided output is brought back to the contrast of the unguided one, against overexposure (Lin et al.
    2023, arXiv:2305.08891, section 3.4); 0.7 is usual with zero terminal SNR, 0 leaves it."""

    solver: Annotated[SolverName, BeforeValidator(solver_named), FREE] = "ddim"
    """The sampler, by short name, by the name of diffusers' class, or as user interfaces call it (`DPM++ 2M Karras`
    sets `sigmas` as well): DDIM (Song et al. 2021), DDPM (Ho et al. 2020),
    Euler and Heun in sigma space (Karras et al. 2022), `euler-a` with fresh noise at each step, LMS, PNDM (Liu et al.
    2022), `dpm2` and `dpm2-a` with fresh noise, DPM-Solver++ (Lu et al. 2022) with two steps, its stochastic form
    `dpm++-sde`, its single-step form `dpm++-single` and, with one step and fresh noise, `dpm++-2s-a`, DEIS, UniPC, and
    LCM for models distilled to few steps (Luo et al. 2023, 4 at guidance 1.5)."""

    timestep_spacing: Annotated[Spacing, FREE] = "auto"
    """Which timesteps are visited: `leading` as Stable Diffusion's own pipelines do, `trailing` from the very end,
    `linspace` evenly with both ends, `stability` evenly down from the last, as Stability's programs for SDXL do.
    `auto` is trailing for a schedule that ends in pure noise, else leading. `library` takes diffusers' class with all
    defaults that it has of itself, as Open-Sora-Plan draws: DDIM and DDPM then cut latents at −1 and 1, and PNDM begins
    with Runge–Kutta steps, nine more calls of the denoiser."""

    clip: ClipSampleSettings = ClipSampleSettings()
    """Clips, of models that draw them."""

    sigmas: Annotated[SigmaChoice, FREE] = "schedule"
    """The levels of noise that are visited: `schedule` those of `spacing`'s timesteps; `karras` denser towards the end
    (Karras et al. 2022, arXiv:2206.00364, eq. 5) between the schedule's ends; `edm` likewise from 80 to 0.002. For
    ddim, euler, euler-a, heun, lms, dpm++, dpm++-2s-a and lcm."""

    sigma_min: Annotated[PositiveFloat | None, FREE] = None
    """With `karras` and `edm`: the lowest level above 0, in deviations of noise over picture."""

    sigma_max: Annotated[PositiveFloat | None, FREE] = None
    """With `karras` and `edm`: the highest level."""

    rho: Annotated[PositiveFloat, FREE] = 7.0
    """With `karras` and `edm`: how much denser; 1 is even."""

    unconditional: Annotated[Literal["auto", "caption", "zeros"], FREE] = "auto"
    """What guidance moves away from: the `caption` of the negative prompt, also when it is empty, or `zeros` in the
    place of a text, whatever the negative prompt. `auto` takes zeros for an empty negative prompt where the model's
    model_index.json says so (force_zeros_for_empty_prompt), as SDXL's base model does."""

    thresholding: ThresholdingSettings = ThresholdingSettings()
    """Bounds for what guidance works on."""

    micro_conditioning: FramingSettings = FramingSettings()
    """Sizes that the model is told."""

    image: Annotated[InputPath | None, FREE] = None
    """A picture to begin with instead of plain noise, scaled and cut in the middle to the size drawn. Of the verb
    `sample`; the previews of a run are drawn without it."""

    strength: Annotated[Share, FREE] = 0.75
    """With `image`: the share of the levels of noise that is gone through, the lowest ones; 1 leaves little of the
    picture, 0 all."""

    refiner: RefinerSettings = RefinerSettings()
    """A second model for the end."""

    batch_size: Annotated[int, Field(gt=0, le=10**6), FREE] = 4
    """How many pictures of one size are drawn together at most. The pictures are the same, up to rounding."""

    @model_validator(mode="before")
    @classmethod
    def _sigmas_of_its_name(cls, values: Any) -> Any:
        return _parted(values)

    @field_validator("size")
    @classmethod
    def _fits(cls, value: tuple[int, int] | None) -> tuple[int, int] | None:
        if value is not None and (min(value) < 8 or value[0] % 8 or value[1] % 8):
            raise ValueError(f"sample.size is width and height in multiples of 8, got {value[0]} × {value[1]}")
        return value

    def contradictions(self) -> Iterator[str]:
        low, high = self.sigma_min, self.sigma_max
        if self.sigmas == "schedule" and (low, high, self.rho) != (None, None, 7.0):
            yield (
                "sample.sigma_min, sample.sigma_max and sample.rho have no effect with sample.sigmas=schedule; write "
                "karras or edm, or leave them out"
            )
        if low is not None and high is not None and low >= high:
            yield f"sample.sigma_min ({low:g}) must be below sample.sigma_max ({high:g})"
        if self.thresholding.ratio is not None and self.guidance_rescale:
            yield "sample.guidance_rescale and sample.thresholding bound the same thing; leave one out"
        if self.image is not None and self.refiner.path is not None and self.strength < self.refiner.strength:
            yield (
                f"sample.strength ({self.strength:g}) is less than sample.refiner.strength "
                f"({self.refiner.strength:g}), so that nothing is left for the first model; raise it"
            )
