"""Converts any pixels of a file to 8-bit sRGB. Used by `decoding.py`, between decoding and resizing.

Pillow's conversion to RGB would clip 16-bit grey to white, show the colours under full transparency, and treat the
numbers of another colour space as sRGB.
"""

from __future__ import annotations

import io
from enum import IntFlag
from typing import Any

import numpy as np
from PIL import Image, ImageCms
from PIL.ImageFile import ImageFile

from mezzotint.data.files.listing import Unusable


class Conversion(IntFlag):
    """Conversions of an image after decoding. A catalogue stores them in 16 bits."""

    TURNED = 1
    ALPHA = 2
    DEEP = 4
    CMYK = 8
    PROFILE = 16
    BAD_PROFILE = 32
    FIRST_FRAME = 64
    COLOUR_SPACE = 128
    SIDEWAYS = 256
    """In addition to `TURNED`: height and width are swapped."""
    VARIABLE_RATE = 512


CONVERSION_NAMES: dict[Conversion, str] = {
    Conversion.TURNED: "rotated according to EXIF",
    Conversion.ALPHA: "transparency composited on the background colour",
    Conversion.DEEP: "more than 8 bits scaled to 8",
    Conversion.CMYK: "CMYK to RGB",
    Conversion.PROFILE: "colour profile to sRGB",
    Conversion.BAD_PROFILE: "unusable colour profile ignored",
    Conversion.FIRST_FRAME: "first of several frames",
    Conversion.COLOUR_SPACE: "YCbCr, Lab or HSV to RGB",
    Conversion.SIDEWAYS: "rotated by 90° or 270°",
    Conversion.VARIABLE_RATE: "clip with variable frame rate, read as if its frames were evenly spaced",
}
"""The name of each conversion in the data report."""


def conversions_of(flags: int) -> tuple[str, ...]:
    """The names of the conversions in `Conversion` flags."""
    return tuple(word for flag, word in CONVERSION_NAMES.items() if flags & flag)


def of_profile(mode: str, profile: bytes) -> Conversion:
    """The conversion that `to_srgb` does for the colour profile of an image with this mode, "L" or "RGB"."""
    return _apply_profile(Image.new(mode, (1, 1)), profile)[1] if profile else Conversion(0)


_SPACE_OF_MODE = {"RGB": "RGB ", "L": "GRAY", "CMYK": "CMYK", "LAB": "Lab "}


def to_srgb(image: ImageFile, background: str) -> tuple[Image.Image, Conversion]:
    """Converts to an 8-bit RGB image of the same size; returns it and the conversions.

    image: a loaded image of any mode. background: #rrggbb, behind transparent pixels. A colour profile is converted to
    sRGB with LittleCMS (relative colorimetric, black point compensation); an invalid profile, or one for another kind
    of pixels, is ignored and flagged; an sRGB profile does not change the pixels. Raises Unusable for float pixels,
    whose range is unknown, and for a profile of more than 16 MB.
    """
    flags = Conversion.DEEP if image.mode.startswith("I") else Conversion(0)
    alpha = opacity(image)
    solid = _eight_bits(image)
    if solid.mode == "CMYK":
        flags |= Conversion.CMYK
    elif solid.mode not in ("RGB", "L"):
        flags |= Conversion.COLOUR_SPACE
    profile = image.info.get("icc_profile")
    if profile:
        solid, changed = _apply_profile(solid, profile)
        flags |= changed
    if solid.mode == "LAB":
        solid = _transform(solid, ImageCms.createProfile("LAB"))
    elif solid.mode != "RGB":
        solid = solid.convert("RGB")
    if alpha is not None and alpha.getextrema() != (255, 255):
        flags |= Conversion.ALPHA
        behind = Image.new("RGB", solid.size, background)
        behind.paste(solid, mask=alpha)
        solid = behind
    return solid, flags


def opacity(image: Image.Image) -> Image.Image | None:
    """The opacity of each pixel, 8 bits, or None if the image has no transparency."""
    if image.mode in ("RGBA", "LA", "PA", "RGBa", "La"):
        return image.getchannel("A")
    if "transparency" not in image.info:
        return None
    if image.mode in ("I;16", "I", "I;16B"):
        opaque = np.asarray(image) != int(image.info["transparency"])
        return Image.fromarray(opaque.astype(np.uint8) * 255)
    return image.convert("RGBA").getchannel("A")


def _eight_bits(image: ImageFile) -> Image.Image:
    """The colours without transparency, in one of the modes L, RGB, CMYK, YCbCr, LAB, HSV."""
    match image.mode:
        case "L" | "RGB" | "CMYK" | "YCbCr" | "LAB" | "HSV":
            return image
        case "1":
            return image.convert("L")
        case "LA" | "La":
            return image.convert("LA").getchannel("L")
        case "P" | "PA" | "RGBA" | "RGBX":
            # without its transparency entry, which would mix in a colour
            plain = image.copy()
            plain.info.pop("transparency", None)
            return _remove_alpha(plain)
        case "RGBa":
            return _remove_alpha(image.convert("RGBA"))
        case "F":
            raise Unusable("float pixels, whose range is unknown; save it with 8 or 16 bits")
        case mode if mode.startswith("I"):
            return _scale_grey(image)
        case mode:
            raise Unusable(f"unsupported pixel mode {mode!r}")


def _remove_alpha(image: Image.Image) -> Image.Image:
    if image.mode == "RGBA":
        return Image.merge("RGB", image.split()[:3])
    return image.convert("RGB")


def _scale_grey(image: ImageFile) -> Image.Image:
    """Converts 16- or 32-bit grey by the range of its type: the largest value is white."""
    values = np.asarray(image)
    top = 65535
    tags: Any = getattr(image, "tag_v2", None)
    if tags is not None:
        bits, kind = (value[0] if isinstance(value, tuple) else value for value in (tags.get(258, 8), tags.get(339, 1)))
        is_signed = int(kind == 2)
        top = 2 ** (bits - is_signed) - 1
        if bits == 32 and not is_signed:
            values = values.view(np.uint32)
    scaled = np.clip(values.astype(np.float64) * (255 / top), 0, 255)
    return Image.fromarray(np.round(scaled).astype(np.uint8))


_MAX_PROFILE = 16 << 20
"""Maximum size of a colour profile; the largest ones of printers have a few million bytes."""


def _apply_profile(image: Image.Image, profile: bytes) -> tuple[Image.Image, Conversion]:
    if len(profile) > _MAX_PROFILE:
        raise Unusable(f"its colour profile has {len(profile):,} bytes, more than {_MAX_PROFILE:,}")
    try:
        source = ImageCms.ImageCmsProfile(io.BytesIO(profile))
        space = source.profile.xcolor_space
        if image.mode == "L" and space == "RGB ":
            image = image.convert("RGB")  # grey pixels with the profile of a colour image
        if space != _SPACE_OF_MODE.get(image.mode):
            return image, Conversion.BAD_PROFILE
        if image.mode == "RGB" and _is_srgb(source):
            return image, Conversion(0)
        return _transform(image, source), Conversion.PROFILE
    except (ImageCms.PyCMSError, OSError, ValueError, TypeError):
        return image, Conversion.BAD_PROFILE


def _transform(image: Image.Image, source: Any) -> Image.Image:
    transform = ImageCms.buildTransform(
        source,
        ImageCms.createProfile("sRGB"),
        image.mode,
        "RGB",
        ImageCms.Intent.RELATIVE_COLORIMETRIC,
        ImageCms.Flags.BLACKPOINTCOMPENSATION,
    )
    converted = ImageCms.applyTransform(image, transform)
    assert converted is not None  # None is for transforms in place
    return converted


def _is_srgb(source: ImageCms.ImageCmsProfile) -> bool:
    """Whether a profile maps a cube of 9³ colours to itself, except for rounding."""
    steps = np.linspace(0, 255, 9).astype(np.uint8)
    cube = np.stack(np.meshgrid(steps, steps, steps), axis=-1).reshape(27, 27, 3)
    after = np.asarray(_transform(Image.fromarray(cube), source))
    return int(np.abs(after.astype(int) - cube).max()) <= 2
