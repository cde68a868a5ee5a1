"""A drawn picture as a file: a PNG that says, in its text chunks, how it was drawn.

Any reader of PNG text shows them (`exiftool picture.png`, Pillow's `Image.open(…).text`); prompts of every script are
kept, as UTF-8 (iTXt).
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from mezzotint import __version__
from mezzotint.errors import RecipeError
from mezzotint.recipe.sample import SampleSettings
from mezzotint.recipe.sample_clip import ClipSampleSettings
from mezzotint.sampling.grids import spread
from mezzotint.sampling.sample import Request
from mezzotint.shapes import Size


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
        "spacing": settings.spacing,
        **_unusual(settings),
        "mezzotint": __version__,
    }


def _unusual(settings: SampleSettings) -> dict[str, str]:
    """Further settings that are not what they usually are, by path; of files their names, not where they lie."""
    usual = SampleSettings()
    found: dict[str, str] = {}
    for name in ("sigmas", "sigma_min", "sigma_max", "rho", "unconditional"):
        value = getattr(settings, name)
        if value != getattr(usual, name):
            found[name] = f"{value}"
    if settings.image is not None:
        found |= {"image": settings.image.name, "strength": f"{settings.strength!r}"}
    sections = {"thresholding": settings.thresholding, "framing": settings.framing, "refiner": settings.refiner}
    for section, inner in sections.items():
        if inner != getattr(usual, section):
            dumped = inner.model_dump(mode="json")
            found |= {f"{section}.{key}": _word(value) for key, value in dumped.items() if value is not None}
    return found


def _word(value: object) -> str:
    return Path(value).name if isinstance(value, str) else json.dumps(value)


def png(pixels: NDArray[np.uint8], told: Mapping[str, str]) -> bytes:
    """The file. pixels: (H, W, 3) uint8. told: text chunks by name."""
    info = PngInfo()
    for name, value in told.items():
        info.add_itxt(name, value.replace("\0", " ").encode("utf-8", "replace").decode())
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG", pnginfo=info)
    return file.getvalue()


def ending(size: Size) -> str:
    """Of the file that a picture or clip of a size is written to."""
    return ".png" if size.frames == 1 else ".mp4"


def file(pixels: NDArray[np.uint8], told: Mapping[str, str], clip: ClipSampleSettings) -> bytes:
    """The file: a PNG of a picture (H, W, 3), an MP4 of a clip (F, H, W, 3)."""
    if pixels.ndim == 3:
        return png(pixels, told)
    written: bytes = _video().mp4(pixels, told, rate=clip.rate, codec=clip.codec, quality=clip.quality)
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
