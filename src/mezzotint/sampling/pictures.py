"""A drawn picture as a file: a PNG that says, in its text chunks, how it was drawn.

Any reader of PNG text shows them (`exiftool picture.png`, Pillow's `Image.open(…).text`); prompts of every script are
kept, as UTF-8 (iTXt).
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from mezzotint import __version__
from mezzotint.recipe.sample import SampleSettings
from mezzotint.sampling.sample import Request


def facts(request: Request, settings: SampleSettings) -> dict[str, str]:
    """How a picture was drawn, as text by name: everything that `mezzotint sample` needs to draw it again, but the
    model."""
    steps = settings.steps if request.steps is None else request.steps
    guidance = settings.guidance[0] if request.guidance is None else request.guidance
    return {
        "prompt": request.prompt,
        "negative_prompt": request.negative,
        "size": f"{request.size.width}x{request.size.height}",
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
