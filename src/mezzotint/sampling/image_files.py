"""A generated image as a file: a PNG with two text chunks that record how it was generated.

    mezzotint    everything except the model, as JSON, text by name; enough to generate it again
    parameters   the same in the format of AUTOMATIC1111's web UI, which ComfyUI and Civitai read as well

There is no chunk `prompt`, because ComfyUI expects one of its graphs in it and fails on plain text. Any PNG text reader
shows both chunks; text in every script is preserved, as UTF-8 (iTXt).
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from PIL.PngImagePlugin import PngImageFile, PngInfo

from mezzotint import __version__, outside
from mezzotint.errors import RecipeError
from mezzotint.sampling.grids import spread_indices
from mezzotint.sampling.requests import Request
from mezzotint.settings.sections.sample import ClipSampleSettings, SampleSettings, SolverName
from mezzotint.shapes import Size

RECORD, PARAMETERS = "mezzotint", "parameters"
"""The names of the two text chunks."""

_SAMPLERS: Mapping[SolverName, str] = {
    "ddim": "DDIM", "ddpm": "DDPM", "euler": "Euler", "euler-a": "Euler a", "heun": "Heun", "lms": "LMS",
    "pndm": "PLMS", "dpm2": "DPM2", "dpm2-a": "DPM2 a", "dpm++": "DPM++ 2M", "dpm++-sde": "DPM++ 2M SDE",
    "dpm++-single": "DPM++ 2S", "dpm++-2s-a": "DPM++ 2S a", "deis": "DEIS", "unipc": "UniPC", "lcm": "LCM",
}  # fmt: skip
"""The web UI's names for our solvers."""


def generation_facts(request: Request, settings: SampleSettings) -> dict[str, str]:
    """How an image was generated, as text by name: everything that `mezzotint sample` needs to generate it again,
    except the model."""
    steps = settings.steps if request.steps is None else request.steps
    guidance = settings.guidance[0] if request.guidance is None else request.guidance
    return {
        "prompt": request.prompt,
        "negative_prompt": request.negative,
        "size": f"{request.size.width}x{request.size.height}",
        **({"frames": f"{request.size.frames}"} if request.size.frames > 1 else {}),
        "seed": f"{request.seed}",
        "index": f"{request.index}",
        "steps": f"{steps}",
        "guidance": f"{guidance!r}",
        "guidance_rescale": f"{settings.guidance_rescale!r}",
        "solver": request.solver or settings.solver,
        "spacing": settings.timestep_spacing,
        **_non_default(settings),
        "mezzotint": __version__,
    }


def _non_default(settings: SampleSettings) -> dict[str, str]:
    """Further settings that differ from their defaults, by path; for a second model the name of its file, because its
    weights are identified by their fingerprint. The start image is recorded by the caller."""
    defaults = SampleSettings()
    texts: dict[str, str] = {}
    for name in ("sigmas", "sigma_min", "sigma_max", "rho", "unconditional"):
        value = getattr(settings, name)
        if value != getattr(defaults, name):
            texts[name] = f"{value}"
    sections = {
        "thresholding": (settings.thresholding, defaults.thresholding),
        "micro_conditioning": (settings.micro_conditioning, defaults.micro_conditioning),
        "refiner": (settings.refiner, defaults.refiner),
    }
    for section, (inner, default) in sections.items():
        if inner != default:
            dumped = inner.model_dump(mode="json")
            texts |= {f"{section}.{key}": _to_text(value) for key, value in dumped.items() if value is not None}
    return texts


def _to_text(value: object) -> str:
    return Path(value).name if isinstance(value, str) else json.dumps(value)


def png(pixels: NDArray[np.uint8], texts: Mapping[str, str]) -> bytes:
    """The bytes of the PNG. pixels: (H, W, 3) uint8. texts: how it was generated, by name; stored in the chunks
    `mezzotint` and `parameters`."""
    plain = {name: value.replace("\0", " ").encode("utf-8", "replace").decode() for name, value in texts.items()}
    info = PngInfo()
    for name, text in ((PARAMETERS, parameters(plain)), (RECORD, json.dumps(plain, ensure_ascii=False))):
        # not Latin-1 as Pillow would write it: several readers decode plain text chunks as UTF-8
        (info.add_text if text.isascii() else info.add_itxt)(name, text)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG", pnginfo=info)
    return file.getvalue()


def read_record(image: Image.Image) -> dict[str, str]:
    """How an opened PNG was generated, by name, as given to `png`. Empty for images from other programs. Raises
    AttributeError if the image is not a PNG."""
    try:
        record = outside.parse_json(str(cast(PngImageFile, image).text.get(RECORD, "")))
    except ValueError:
        return {}
    return {str(name): str(value) for name, value in record.items()} if isinstance(record, dict) else {}


def parameters(texts: Mapping[str, str]) -> str:
    """How an image was generated, in the format of AUTOMATIC1111's web UI: prompt, negative prompt, one line of
    settings. texts: of `generation_facts`, and of the model."""
    solver, name = texts.get("solver", ""), texts.get("model_name", texts.get("model", ""))
    schedule = {"karras": "Karras", "edm": "Karras"}.get(texts.get("sigmas", ""), "")
    rest = {
        "Steps": texts.get("steps", ""),
        "Sampler": next((theirs for ours, theirs in _SAMPLERS.items() if ours == solver), solver),
        "Schedule type": schedule,
        "CFG scale": f"{float(texts.get('guidance', 'nan')):g}",
        "Seed": texts.get("seed", ""),
        "Size": texts.get("size", ""),
        "Model": _quote(name),
        "Denoising strength": texts.get("strength", "") if "image" in texts else "",
        "Version": f"mezzotint {texts.get(RECORD, __version__)}",
    }
    negative = texts.get("negative_prompt", "")
    lines = [texts.get("prompt", ""), f"Negative prompt: {negative}" if negative else ""]
    return "\n".join(
        [*lines[:1], *filter(None, lines[1:]), ", ".join(f"{key}: {value}" for key, value in rest.items() if value)]
    )


def _quote(text: str) -> str:
    """A value in the line of settings; quoted if it contains a separator, as in the web UI."""
    return json.dumps(text, ensure_ascii=False) if any(mark in text for mark in ',\n:"') else text


def file_suffix(size: Size) -> str:
    """The file suffix for an image or a clip of a size."""
    return ".png" if size.frames == 1 else ".mp4"


def file(pixels: NDArray[np.uint8], texts: Mapping[str, str], clip: ClipSampleSettings) -> bytes:
    """The bytes of the file: a PNG for an image (H, W, 3), an MP4 for a clip (F, H, W, 3)."""
    if pixels.ndim == 3:
        return png(pixels, texts)
    written: bytes = _video().mp4(pixels, texts, rate=clip.rate, codec=clip.codec, quality=clip.quality)
    return written


def check_clip_encoder(clip: ClipSampleSettings) -> str:
    """A note for the user if clips cannot be written as the recipe asks, else "". Raises RecipeError E1466, E1467."""
    return str(_video().encoder(clip.codec)[1])


def _video() -> Any:
    try:
        return import_module("mezzotint.sampling.video")
    except ModuleNotFoundError as error:
        raise RecipeError(
            f"writing clips needs the package {error.name}, which is not installed; install mezzotint[video], or "
            "generate images: sample.clip.frames=1",
            code="E1466",
        ) from error


def film_strip(pixels: NDArray[np.uint8], count: int = 4) -> NDArray[np.uint8]:
    """An image unchanged; for a clip (F, H, W, 3) up to `count` frames from the first to the last, side by side with
    thin lines between them, (H, W', 3)."""
    if pixels.ndim == 3:
        return pixels
    chosen = [pixels[i] for i in spread_indices(len(pixels), count)]
    line = np.full((pixels.shape[1], 2, 3), 255, np.uint8)
    return np.concatenate([part for image in chosen for part in (image, line)][:-1], axis=1)
