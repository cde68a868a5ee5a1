"""A drawn picture as a file: a PNG that says, in its text chunks, how it was drawn.

Any reader of PNG text shows them (`exiftool picture.png`, Pillow's `Image.open(…).text`); prompts of every script are
kept, as UTF-8 (iTXt).
"""

from __future__ import annotations

import io
from collections.abc import Mapping

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
        "mezzotint": __version__,
    }


def png(pixels: NDArray[np.uint8], told: Mapping[str, str]) -> bytes:
    """The file. pixels: (H, W, 3) uint8. told: text chunks by name."""
    info = PngInfo()
    for name, value in told.items():
        info.add_itxt(name, value.replace("\0", " ").encode("utf-8", "replace").decode())
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG", pnginfo=info)
    return file.getvalue()
