"""A drawn picture as a file: a PNG that says, in two text chunks, how it was drawn.

    mezzotint    everything, as JSON, text by name: what draws it again, but the model
    parameters   the same in the form of AUTOMATIC1111's web UI, which ComfyUI and Civitai read as well

There is no chunk `prompt` on purpose: ComfyUI takes that for a graph of its own and stops at plain text. Any reader of
PNG text shows both; text of every script is kept, as UTF-8 (iTXt).
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
from mezzotint.sampling.grids import spread
from mezzotint.sampling.requests import Request
from mezzotint.settings.sections.sample import ClipSampleSettings, SampleSettings, SolverName
from mezzotint.shapes import Size

OWN, PARAMETERS = "mezzotint", "parameters"
"""The names of the two text chunks."""

_SAMPLERS: Mapping[SolverName, str] = {
    "ddim": "DDIM", "ddpm": "DDPM", "euler": "Euler", "euler-a": "Euler a", "heun": "Heun", "lms": "LMS",
    "pndm": "PLMS", "dpm2": "DPM2", "dpm2-a": "DPM2 a", "dpm++": "DPM++ 2M", "dpm++-sde": "DPM++ 2M SDE",
    "dpm++-single": "DPM++ 2S", "dpm++-2s-a": "DPM++ 2S a", "deis": "DEIS", "unipc": "UniPC", "lcm": "LCM",
}  # fmt: skip
"""The web UI's names for our solvers."""


def facts(request: Request, settings: SampleSettings) -> dict[str, str]:
    """How a picture was drawn, as text by name: everything that `mezzotint sample` needs to draw it again, but the
    model."""
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
        **_unusual(settings),
        "mezzotint": __version__,
    }


def _unusual(settings: SampleSettings) -> dict[str, str]:
    """Further settings that are not what they usually are, by path; of a second model the name of its file, since its
    weights are told by their fingerprint. What a picture began with is told where it is drawn."""
    usual = SampleSettings()
    texts: dict[str, str] = {}
    for name in ("sigmas", "sigma_min", "sigma_max", "rho", "unconditional"):
        value = getattr(settings, name)
        if value != getattr(usual, name):
            texts[name] = f"{value}"
    sections = {
        "thresholding": (settings.thresholding, usual.thresholding),
        "micro_conditioning": (settings.micro_conditioning, usual.micro_conditioning),
        "refiner": (settings.refiner, usual.refiner),
    }
    for section, (inner, default) in sections.items():
        if inner != default:
            dumped = inner.model_dump(mode="json")
            texts |= {f"{section}.{key}": _word(value) for key, value in dumped.items() if value is not None}
    return texts


def _word(value: object) -> str:
    return Path(value).name if isinstance(value, str) else json.dumps(value)


def png(pixels: NDArray[np.uint8], texts: Mapping[str, str]) -> bytes:
    """The file. pixels: (H, W, 3) uint8. texts: how it was drawn, by name; kept in the chunks `mezzotint` and
    `parameters`."""
    plain = {name: value.replace("\0", " ").encode("utf-8", "replace").decode() for name, value in texts.items()}
    info = PngInfo()
    for name, text in ((PARAMETERS, parameters(plain)), (OWN, json.dumps(plain, ensure_ascii=False))):
        # not Latin-1 as Pillow would write it: several readers take plain text chunks for UTF-8
        (info.add_text if text.isascii() else info.add_itxt)(name, text)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG", pnginfo=info)
    return file.getvalue()


def recorded_in(image: Image.Image) -> dict[str, str]:
    """How an opened PNG was drawn, by name, as `png` was told. Empty for pictures of others. Raises AttributeError for
    what is no PNG."""
    try:
        own = outside.parse_json(str(cast(PngImageFile, image).text.get(OWN, "")))
    except ValueError:
        return {}
    return {str(name): str(value) for name, value in own.items()} if isinstance(own, dict) else {}


def parameters(texts: Mapping[str, str]) -> str:
    """How a picture was drawn, as AUTOMATIC1111's web UI writes it: the prompt, the negative one, one line of the rest.
    texts: as `facts` gives it, and what is known of the model."""
    solver, name = texts.get("solver", ""), texts.get("model_name", texts.get("model", ""))
    schedule = {"karras": "Karras", "edm": "Karras"}.get(texts.get("sigmas", ""), "")
    rest = {
        "Steps": texts.get("steps", ""),
        "Sampler": next((theirs for ours, theirs in _SAMPLERS.items() if ours == solver), solver),
        "Schedule type": schedule,
        "CFG scale": f"{float(texts.get('guidance', 'nan')):g}",
        "Seed": texts.get("seed", ""),
        "Size": texts.get("size", ""),
        "Model": _quoted(name),
        "Denoising strength": texts.get("strength", "") if "image" in texts else "",
        "Version": f"mezzotint {texts.get(OWN, __version__)}",
    }
    negative = texts.get("negative_prompt", "")
    lines = [texts.get("prompt", ""), f"Negative prompt: {negative}" if negative else ""]
    return "\n".join(
        [*lines[:1], *filter(None, lines[1:]), ", ".join(f"{key}: {value}" for key, value in rest.items() if value)]
    )


def _quoted(text: str) -> str:
    """A value of the line of settings; one that holds what separates them stands in quotes, as there."""
    return json.dumps(text, ensure_ascii=False) if any(mark in text for mark in ',\n:"') else text


def ending(size: Size) -> str:
    """Of the file that a picture or clip of a size is written to."""
    return ".png" if size.frames == 1 else ".mp4"


def file(pixels: NDArray[np.uint8], texts: Mapping[str, str], clip: ClipSampleSettings) -> bytes:
    """The file: a PNG of a picture (H, W, 3), an MP4 of a clip (F, H, W, 3)."""
    if pixels.ndim == 3:
        return png(pixels, texts)
    written: bytes = _video().mp4(pixels, texts, rate=clip.rate, codec=clip.codec, quality=clip.quality)
    return written


def written_as(clip: ClipSampleSettings) -> str:
    """A sentence for the reader when clips cannot be written as the recipe asks, else "". Raises RecipeError E1466,
    E1467."""
    return str(_video().encoder(clip.codec)[1])


def _video() -> Any:
    try:
        return import_module("mezzotint.sampling.video")
    except ModuleNotFoundError as error:
        raise RecipeError(
            f"a clip is written with the package {error.name}, which is not installed; install mezzotint[video], or "
            "draw pictures: sample.clip.frames=1",
            code="E1466",
        ) from error


def strip(pixels: NDArray[np.uint8], count: int = 4) -> NDArray[np.uint8]:
    """A picture as it is; of a clip (F, H, W, 3) up to `count` frames from the first to the last, side by side with a
    thin line between, (H, W', 3)."""
    if pixels.ndim == 3:
        return pixels
    chosen = [pixels[i] for i in spread(len(pixels), count)]
    line = np.full((pixels.shape[1], 2, 3), 255, np.uint8)
    return np.concatenate([part for picture in chosen for part in (picture, line)][:-1], axis=1)
