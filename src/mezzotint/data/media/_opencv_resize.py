"""Resizing with OpenCV (extra `opencv`), for recipes whose pixels must equal those of programs that use it. Pillow's
filters, which `decoding.py` uses otherwise, are antialiased when an image shrinks; these are not.
"""

from __future__ import annotations

from types import ModuleType

import numpy as np
from numpy.typing import NDArray

from mezzotint.errors import RecipeError
from mezzotint.shapes import Size

_Bytes = NDArray[np.uint8]


def load() -> ModuleType:
    """Imports OpenCV. Raises RecipeError E1293 if it is not installed."""
    try:
        import cv2
    except ImportError as error:
        raise RecipeError(
            "data.resize=area and data.antialias=false resize with OpenCV, which is not installed; "
            "pip install 'mezzotint[opencv]', or choose another data.resize with data.antialias=true",
            code="E1293",
        ) from error
    cv2.setNumThreads(1)  # images are decoded in parallel already, in workers that may be forked
    return cv2


def resize(image: _Bytes, size: Size, kind: str) -> _Bytes:
    """An image (H, W, C) resized to (size.height, size.width, C).

    kind: "nearest", "bilinear", "bicubic" (a = −0.75) or "area" (the mean of the pixels that a new one covers), as
    OpenCV's INTER_NEAREST, INTER_LINEAR, INTER_CUBIC and INTER_AREA. Raises RecipeError E1293 without OpenCV.
    """
    cv2 = load()
    interpolation = {
        "nearest": cv2.INTER_NEAREST, "bilinear": cv2.INTER_LINEAR, "bicubic": cv2.INTER_CUBIC, "area": cv2.INTER_AREA,
    }[kind]  # fmt: skip
    had_ipp = cv2.ipp.useIPP()
    # Intel's IPP rounds INTER_CUBIC differently (±1 in about 4 % of values); without it all x86 processors agree. The
    # flag belongs to the calling thread.
    cv2.ipp.setUseIPP(False)
    try:
        return np.asarray(cv2.resize(image, (size.width, size.height), interpolation=interpolation), dtype=np.uint8)
    finally:
        cv2.ipp.setUseIPP(had_ipp)
