"""How images are sampled from a model: previews during training, and the command `sample`."""

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
ConditionFiles = Annotated[tuple[InputPath, ...], BeforeValidator(as_list), Field(min_length=1)]
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
"""SDXL's sizes, width and height, by Stability's and MindONE's names: width over height. `sample.size` takes `sdxl-`
and the name."""

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
"""Our names for diffusers' scheduler classes; `sample.solver` accepts both."""


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
"""Solver names of A1111, ComfyUI and kohya, in lower case with hyphens; names equal to ours are left out."""


def parse_solver(value: Any) -> Any:
    """Our name for a diffusers class or a solver name of a user interface; other values are returned unchanged."""
    if not isinstance(value, str):
        return value
    spelled = re.sub(r"[\s_]+", "-", value.strip().lower())
    name = spelled if spelled in get_args(SolverName) else _SOLVER_NAMES.get(spelled)
    return SOLVER_CLASSES.get(value, name or value)


def _split_solver(values: Any) -> Any:
    """Splits `solver: DPM++ 2M Karras` into a solver and its sigmas."""
    name = values.get("solver") if isinstance(values, dict) else None
    match = re.fullmatch(r"(.+?)[\s_-]+karras", name.strip(), re.IGNORECASE) if isinstance(name, str) else None
    if match is None or parse_solver(match[1]) not in get_args(SolverName):
        return values
    return {"sigmas": "karras", **values, "solver": parse_solver(match[1])}


def parse_size(value: Any) -> Any:
    """The width and height of a named size, such as `sdxl-1.46`; other values are returned unchanged. Raises ValueError
    for an unknown name."""
    if not isinstance(value, str) or not value.startswith("sdxl-"):
        return value
    name = value.removeprefix("sdxl-")
    if name not in SDXL_SIZES:
        names = ", ".join(f"sdxl-{size}" for size in SDXL_SIZES)
        raise ValueError(f"there is no size {value}; known: {names}")
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
Pair = Annotated[tuple[_Side, _Side], BeforeValidator(parse_size), _SIZE_SCHEMA]
"""Width and height, or a named size."""


Codec = Literal["h264", "mpeg4"]


class ClipSampleSettings(Section):
    """Video, for families that generate clips, such as `wan` and `ltx`. Each clip is an .mp4 file, and a strip of
    frames on the contact sheet."""

    frames: Annotated[Annotated[int, Field(gt=0, le=10**5)] | None, FREE] = None
    """How many frames are generated; 4k + 1 wastes none (17, 65, 221). 1 generates images. None is the training length
    (`data.clips.frames`), and for a model without a run the length in its configuration."""

    rate: Annotated[Annotated[float, Field(gt=0.0, le=240.0)], FREE] = 24.0
    """Frames per second of the files."""

    codec: Annotated[Codec, FREE] = "h264"
    """The video codec: `h264` plays everywhere; `mpeg4`, the older MPEG-4 part 2, if PyAV has no H.264 encoder. If the
    chosen one is missing, the command uses the other and prints so."""

    quality: Annotated[Annotated[int, Field(ge=1, le=31)], FREE] = 10
    """The loss of quality: 1 almost none, 31 the most."""

    first_frame: Annotated[InputPath | None, FREE] = None
    """An image that every clip starts with, resized to cover its size and cropped to the middle: image to video, for
    the families `ltx`, and `wan` with Wan 2.2 TI2V 5B and the I2V models, which need it: here, or for each prompt in
    `sample.conditions.first_frame`. Also used by previews."""


class ThresholdingSettings(Section):
    """Dynamic thresholding (Saharia et al. 2022, arXiv:2205.11487, section 2.3): the denoiser's estimate of the image
    is clamped before guidance, separately for each text. Bounds are in the model's latent units."""

    ratio: Annotated[Share | None, FREE] = None
    """The fraction of values that are not clamped, such as 0.995. The bound is that quantile of their absolute values,
    at least 1 and at most `max`; larger values are clamped, and all are divided by the bound. null switches it off."""

    max: Annotated[float, Field(ge=1.0), FREE] = 1.0
    """The largest bound. 1 clamps at −1 and 1."""


class RefinerSettings(Section):
    """A second model for the last part of sampling, such as SDXL's refiner. Only for the command `sample`; previews do
    not use it."""

    path: Annotated[ModelPath | None, FREE] = None
    """The second model: a folder or a file, with the same latents. It gets the same prompts, and negative prompts
    through its own text encoder. null uses none."""

    strength: Annotated[Share, FREE] = 0.15
    """Its share of the noise levels, the lowest ones."""

    finish: Annotated[bool, FREE] = True
    """true: the first model stops where the second starts, which continues from the same noise. false: the first model
    samples to the end, and the second starts with new noise added to its image."""

    guidance: Annotated[NonNegativeFloat, FREE] = 5.0
    """Its guidance scale."""


class FramingSettings(Section):
    """Size conditioning of SDXL: the size of the image of which the generated one is a crop."""

    original_size: Annotated[Pair | None, FREE] = None
    """Width and height of the whole image; null is the generated size. Smaller values look upscaled."""

    target_size: Annotated[Pair | None, FREE] = None
    """Width and height after cropping; null is the generated size."""

    crop_top_left: Annotated[tuple[NonNegativeInt, NonNegativeInt], FREE] = (0, 0)
    """Top and left of the crop. Above 0, objects are cut off at the edges."""

    aesthetic_score: Annotated[float, FREE] = 6.0
    """The aesthetic score given to SDXL's refiner."""

    negative_aesthetic_score: Annotated[float, FREE] = 2.5
    """The same for the unconditional half of guidance."""


class SampleSettings(Section):
    """Prompts and how images are sampled from them. Prompts and seed stay the same for the whole run, so previews can
    be compared."""

    prompts: Annotated[Texts, FREE] = ()
    """One image is generated for each prompt. Empty uses the first four different captions of the data set."""

    negative_prompt: Annotated[str, FREE] = ""
    """The text that guidance moves away from; usually empty."""

    size: Annotated[Pair | None, FREE] = None
    """Width and height in pixels, multiples of 8, or a named SDXL size, from `sdxl-0.5` to `sdxl-3.0`. None is
    `data.resolution` squared, and for previews of captions the bucket size of the caption's image."""

    seed: Annotated[int, FREE] = 0
    """The seed of the images' noise; image i is addressed by (seed, i). -1 draws a new seed and prints it: the command
    `sample` at each call, a run once for all its previews, also when it is resumed."""

    steps: Annotated[int, Field(ge=1, le=1000), FREE] = 20
    """Steps of the sampler; more is slower and smoother. `heun`, `dpm2` and `dpm++-2s-a` call the denoiser twice a
    step. Families have their own defaults, and so do distilled models: FLUX.1-schnell and FLUX.2 Klein 4, Z-Image-Turbo
    8."""

    under: Annotated[bool, FREE] = False
    """Also apply the adapters of `model.under`, with which the model is trained, when a run's previews and samples are
    generated."""

    prompt_file: Annotated[InputPath | None, FREE] = None
    """A file of prompts instead of `sample.prompts`: a `.txt` with one per line, or a `.json` with settings for all and
    for each (prompt, negative_prompt, seed, size, aspect_ratio, guidance, random_caption). It is read again before each
    preview; if it is invalid then, the last valid version stays in use."""

    guidance: Annotated[Scales, FREE] = (7.5,)
    """Classifier-free guidance scale; 1 switches guidance off and halves the work (0 for Z-Image). A list samples each
    prompt at each scale, side by side. Families have their own defaults; distilled models use no guidance."""

    conditions: Annotated[dict[str, ConditionFiles], FREE] = Field(default_factory=dict)
    """Condition images by name, for models that take them: `{source: cat.png}` for all prompts, or a list with one for
    each prompt. As in training, each is resized to cover the generated size and cropped to the middle, or keeps its
    shape (`align: own`); without training it keeps its shape where the model allows it, at about as many pixels.
    Models that inpaint take `{source: photo.png, mask: mask.png}`, a mask of the same size, white where the image is
    filled. Image-to-video models take `{first_frame: photo.png}`."""

    image_guidance: Annotated[NonNegativeFloat, FREE] = 1.5
    """The guidance scale of the image before an edit: higher values stay closer to it (InstructPix2Pix)."""

    guidance_rescale: Annotated[Share, FREE] = 0.0
    """How far the guided output is rescaled to the contrast of the unguided one, against overexposure (Lin et al. 2023,
    arXiv:2305.08891, section 3.4); 0.7 is usual with zero terminal SNR, 0 switches it off."""

    solver: Annotated[SolverName, BeforeValidator(parse_solver), FREE] = "ddim"
    """The sampler, by short name, by the name of diffusers' class, or by its name in user interfaces (`DPM++ 2M Karras`
    sets `sigmas` as well): DDIM (Song et al. 2021), DDPM (Ho et al. 2020), Euler and Heun in sigma space (Karras et al.
    2022), `euler-a` with new noise at each step, LMS, PNDM (Liu et al. 2022), `dpm2` and `dpm2-a` with new noise,
    DPM-Solver++ (Lu et al. 2022) with two steps, its stochastic form `dpm++-sde`, its single-step form `dpm++-single`
    and, with one step and new noise, `dpm++-2s-a`, DEIS, UniPC, and LCM for models distilled to few steps (Luo et al.
    2023, 4 at guidance 1.5)."""

    timestep_spacing: Annotated[Spacing, FREE] = "auto"
    """Which timesteps are used: `leading` as in Stable Diffusion's own pipelines, `trailing` from the very end,
    `linspace` evenly with both ends, `stability` evenly down from the last, as in Stability's programs for SDXL. `auto`
    is trailing for a schedule that ends in pure noise, otherwise leading. `library` uses diffusers' class with all of
    its own defaults, as Open-Sora-Plan does: DDIM and DDPM then clamp latents at −1 and 1, and PNDM starts with
    Runge–Kutta steps, nine more calls of the denoiser."""

    clip: ClipSampleSettings = ClipSampleSettings()
    """Video, for models that generate clips."""

    sigmas: Annotated[SigmaChoice, FREE] = "schedule"
    """The noise levels: `schedule` those of the timesteps of `timestep_spacing`; `karras` denser towards the end
    (Karras et al. 2022, arXiv:2206.00364, eq. 5) between the schedule's ends; `edm` likewise from 80 to 0.002. For
    ddim, euler, euler-a, heun, lms, dpm++, dpm++-2s-a and lcm."""

    sigma_min: Annotated[PositiveFloat | None, FREE] = None
    """With `karras` and `edm`: the lowest noise level above 0, standard deviation of noise over image."""

    sigma_max: Annotated[PositiveFloat | None, FREE] = None
    """With `karras` and `edm`: the highest noise level."""

    rho: Annotated[PositiveFloat, FREE] = 7.0
    """With `karras` and `edm`: how much denser towards the end; 1 is even."""

    unconditional: Annotated[Literal["auto", "caption", "zeros"], FREE] = "auto"
    """The unconditional half of guidance: the embedding of the negative prompt (`caption`), also if it is empty, or
    `zeros`, whatever the negative prompt. `auto` uses zeros for an empty negative prompt if the model's
    model_index.json asks for it (force_zeros_for_empty_prompt), as SDXL's base model does."""

    thresholding: ThresholdingSettings = ThresholdingSettings()
    """Dynamic thresholding before guidance."""

    micro_conditioning: FramingSettings = FramingSettings()
    """Size conditioning of SDXL."""

    image: Annotated[InputPath | None, FREE] = None
    """An image to start from instead of pure noise (image to image), resized and cropped to the generated size. Only
    for the command `sample`; previews do not use it."""

    strength: Annotated[Share, FREE] = 0.75
    """With `image`: the fraction of the noise levels that are sampled, the lowest ones; 1 keeps little of the image, 0
    all."""

    refiner: RefinerSettings = RefinerSettings()
    """A second model for the last part of sampling."""

    batch_size: Annotated[int, Field(gt=0, le=10**6), FREE] = 4
    """The most images of one size that are sampled together. The images are the same, up to rounding."""

    @model_validator(mode="before")
    @classmethod
    def _split_karras_solver(cls, values: Any) -> Any:
        return _split_solver(values)

    @field_validator("size")
    @classmethod
    def _check_size(cls, value: tuple[int, int] | None) -> tuple[int, int] | None:
        if value is not None and (min(value) < 8 or value[0] % 8 or value[1] % 8):
            raise ValueError(f"sample.size needs width and height in multiples of 8, got {value[0]} × {value[1]}")
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
            yield "sample.guidance_rescale and sample.thresholding limit the same thing; leave one out"
        if self.image is not None and self.refiner.path is not None and self.strength < self.refiner.strength:
            yield (
                f"sample.strength ({self.strength:g}) is less than sample.refiner.strength "
                f"({self.refiner.strength:g}), which leaves nothing to the first model; raise it"
            )
