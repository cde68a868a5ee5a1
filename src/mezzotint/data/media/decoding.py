"""From an image file to pixels: every file is used, converted or rejected with a reason.

`probe` fully decodes a file once, when the catalogue is created, or `probe_quickly` only opens it; `decode_image`
decodes, rotates, converts, resizes and crops it at each visit. Order: the size is checked before decoding, the first
frame is selected, EXIF orientation is applied, deep pixels are scaled to 8 bits, a colour profile is converted to sRGB,
transparency is composited on the background colour, then the image is resized and cropped. Pillow's plugins are called
directly: no other format is tried, and its process-wide pixel limit is neither used nor changed.
"""

from __future__ import annotations

import hashlib
import math
import os
import stat
import struct
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import (
    AvifImagePlugin,
    BmpImagePlugin,
    GifImagePlugin,
    Image,
    JpegImagePlugin,
    PngImagePlugin,
    PpmImagePlugin,
    TiffImagePlugin,
    WebPImagePlugin,
)
from PIL.ImageFile import ImageFile

from mezzotint.data.files import encoded, tar_members
from mezzotint.data.files.listing import Unusable
from mezzotint.data.files.regions import Region
from mezzotint.data.media import _opencv_resize, colour, untrusted
from mezzotint.data.media.colour import Conversion
from mezzotint.errors import DatasetError
from mezzotint.shapes import Size
from mezzotint.stages import Placement

PREPROCESSING = 1
"""The version of everything in this file and in `colour.py` that affects pixels: part of every cache address. Increment
it when a pixel changes, and `SCALED` and `OPENCV` as well."""

SCALED = 2
"""The version of pixels that may come from a JPEG decoded at reduced size (`decode_image`, scaled)."""

OPENCV = 3
"""The version of pixels resized by OpenCV."""

_LEAST = ((8, 4.0), (4, 3.5), (2, 2.75))
"""Reduction factors of a JPEG, and the minimum size of the result as a multiple of the target size: at least 50 dB
compared with a full decode, measured on seven photos. With less, the difference is visible."""

_ENDINGS = "png apng jpg jpeg jpe jfif webp gif bmp tif tiff avif ppm pgm pbm pnm"
SUFFIXES = frozenset(f".{ending}" for ending in _ENDINGS.split())
"""Extensions of images, lower case."""

_MAGIC: tuple[tuple[bytes, int, Callable[[BufferedReader], ImageFile]], ...] = (
    (b"\x89PNG\r\n\x1a\n", 0, PngImagePlugin.PngImageFile),
    (b"\xff\xd8\xff", 0, JpegImagePlugin.JpegImageFile),
    (b"WEBP", 8, WebPImagePlugin.WebPImageFile),
    (b"GIF8", 0, GifImagePlugin.GifImageFile),
    (b"BM", 0, BmpImagePlugin.BmpImageFile),
    (b"II*\x00", 0, TiffImagePlugin.TiffImageFile),
    (b"MM\x00*", 0, TiffImagePlugin.TiffImageFile),
    (b"II+\x00", 0, TiffImagePlugin.TiffImageFile),
    (b"MM\x00+", 0, TiffImagePlugin.TiffImageFile),
    (b"ftyp", 4, AvifImagePlugin.AvifImageFile),
    *((b"P%d" % n, 0, PpmImagePlugin.PpmImageFile) for n in range(1, 7)),
)

_FILTERS = {kind.name.lower(): kind for kind in Image.Resampling}

_SMOOTH = frozenset({"lanczos", "bicubic", "bilinear", "hamming", "box"})
_Box = tuple[float, float, float, float]

_ROTATIONS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}


_MAX_EXIF = 4 << 20
"""Maximum size of EXIF; including a preview, most files have less than 100,000 bytes."""


@dataclass(frozen=True, slots=True)
class Probe:
    """Facts about a decoded file. size: displayed size, with the number of frames. digest: SHA-256 of the file's bytes.
    conversions: `Conversion` flags. begin, rate: of a clip, the time of its first frame in seconds on its clock, and
    its mean frames per second; 0 for an image."""

    size: Size
    digest: bytes
    conversions: int
    begin: float = 0.0
    rate: float = 0.0


def probe(path: Path, max_pixels: int) -> Probe:
    """Fully decodes an image and returns its facts. Raises DatasetError E1206 with the reason why it cannot be used:
    not a regular file, unknown format, more than `max_pixels`, damaged, float pixels."""
    files = encoded.files_of(path)
    if files is not None:
        return Probe(*files.probe(path), conversions=0)
    with readable_file(path) as file:
        digest = hashlib.file_digest(file, "sha256").digest()
        _check_png(file)
        # any background colour: the pixels are discarded
        image, flags, _ = _decode(file, max_pixels, "#ffffff")
        return Probe(Size(image.width, image.height), digest, int(flags))


def probe_quickly(path: Path, max_pixels: int) -> Probe:
    """Like `probe`, but does not decode the file if opening it with Pillow is sufficient: JPEG, PNG and WebP, 8 bits
    per channel, grey or RGB, one frame, no transparency. The file is hashed; damaged pixels are detected at the first
    use. Raises as `probe`."""
    if encoded.files_of(path) is None:
        with readable_file(path) as file:
            has_late_metadata = _check_png(file)
            image, flags = _open_checked(file, max_pixels)
            is_plain = _is_plain(image) and not flags and not has_late_metadata
            if is_plain and not untrusted.is_cut_short(file):
                flags = _rotation_flags(_orientation(image)) | colour.of_profile(
                    image.mode, image.info.get("icc_profile", b"")
                )
                size = Size(*(image.size[::-1] if Conversion.SIDEWAYS in flags else image.size))
                file.seek(0)
                return Probe(size, hashlib.file_digest(file, "sha256").digest(), int(flags))
    return probe(path, max_pixels)


def _is_plain(image: ImageFile) -> bool:
    kinds = JpegImagePlugin.JpegImageFile, PngImagePlugin.PngImageFile, WebPImagePlugin.WebPImageFile
    return isinstance(image, kinds) and image.mode in ("L", "RGB") and "transparency" not in image.info


def version(*, scaled: bool, resize: str, antialias: bool) -> int:
    """The version of `decode_image`'s pixels with these settings."""
    if uses_opencv(resize=resize, antialias=antialias):
        return OPENCV
    return SCALED if scaled and antialias and resize in _SMOOTH else PREPROCESSING


def uses_opencv(*, resize: str, antialias: bool) -> bool:
    """Whether images are resized by OpenCV instead of Pillow."""
    return resize == "area" or not antialias


def require_packages(*, resize: str, antialias: bool) -> None:
    """Raises RecipeError E1293 if these settings need OpenCV and it is not installed."""
    if uses_opencv(resize=resize, antialias=antialias):
        _opencv_resize.load()


def decode_image(
    path: Path, placement: Placement, *, resize: str, background: str, max_pixels: int, antialias: bool = True,
    scaled: bool = False, region: Region | None = None,
) -> NDArray[np.uint8]:  # fmt: skip
    """Decodes and places an image, (3, H, W) uint8 in sRGB, see `place_image`. background: #rrggbb behind transparent
    pixels. scaled: whether a JPEG that is much larger than the result is decoded at a half, a quarter or an eighth of
    its size, from fewer coefficients. region: the part that is placed, None for the whole image. Raises DatasetError
    E1206."""
    is_scaled = region is None and version(scaled=scaled, resize=resize, antialias=antialias) == SCALED
    with readable_file(path) as file:
        image, _, box = _decode(file, max_pixels, background, placement.resized if is_scaled else None)
        image = image if region is None else region.apply(image)
        return place_image(image, placement, resize=resize, antialias=antialias, box=box)


def place_image(
    image: Image.Image, placement: Placement, *, resize: str, antialias: bool = True, box: _Box | None = None
) -> NDArray[np.uint8]:
    """Places an image in its bucket, (3, H, W) uint8, with H and W of `placement.bucket`. box: the region to use if its
    edges are not at full pixels.

    resize: "lanczos", "bicubic", "bilinear", "hamming" or "box", antialiased when it shrinks, or "nearest"; then crops:
    the order of torchvision's transforms on images, with identical pixels. "area", and any without antialias, uses
    `_opencv_resize.py`.
    """
    kind = resize if antialias else f"plain {resize}"
    return np.ascontiguousarray(
        np.asarray(_resize_and_crop(image, placement, kind, box), dtype=np.uint8).transpose(2, 0, 1)
    )


def mask(
    path: Path, placement: Placement, *, is_alpha: bool, max_pixels: int, region: Region | None = None
) -> NDArray[np.uint8]:  # fmt: skip
    """The mask of a placed image, (H, W) uint8: the brightness of a mask file, with transparent pixels black, or with
    `is_alpha` the opacity of an image. Bilinear, antialiased. region: as in `decode_image`. Raises DatasetError
    E1206."""
    with readable_file(path) as file:
        image = _opacity(file, max_pixels) if is_alpha else _decode(file, max_pixels, "#000000")[0].convert("L")
        image = image if region is None else region.apply(image)
        return np.array(_resize_and_crop(image, placement, "bilinear"), dtype=np.uint8)


def _resize_and_crop(image: Image.Image, placement: Placement, resize: str, box: _Box | None = None) -> Image.Image:
    target, (top, left) = placement.resized, placement.crop_top_left
    if box is not None:
        image = image.resize((target.width, target.height), _FILTERS[resize], box=box)
    elif image.size != (target.width, target.height):
        image = _resize(image, target, resize)
    image = image.crop((left, top, left + placement.bucket.width, top + placement.bucket.height))
    return image.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if placement.flipped else image


def _resize(image: Image.Image, target: Size, kind: str) -> Image.Image:
    if kind in _FILTERS:
        return image.resize((target.width, target.height), _FILTERS[kind])
    return Image.fromarray(_opencv_resize.resize(np.asarray(image), target, kind.removeprefix("plain ")))


def whole_image(path: Path, *, background: str, max_pixels: int, region: Region | None = None) -> NDArray[np.uint8]:
    """An image as displayed, or its region, (H, W, 3) uint8 in sRGB, not resized. Raises DatasetError E1206."""
    with readable_file(path) as file:
        image = _decode(file, max_pixels, background)[0]
        return np.asarray(image if region is None else region.apply(image), dtype=np.uint8)


def thumbnail(path: Path, side: int, *, background: str, max_pixels: int, region: Region | None = None) -> Image.Image:
    """An image as displayed, or its region, in RGB, at most `side` × `side`: for viewing, not for training. A
    whole JPEG is decoded at reduced size. Raises DatasetError E1206."""
    with readable_file(path) as file:
        source = _open_image(file)
        if isinstance(source, JpegImagePlugin.JpegImageFile) and source.width * source.height <= max_pixels:
            source.draft(None, (2 * side, 2 * side) if region is None else source.size)
            source.load()  # needed if neither the size nor the colours change below
            orientation = _orientation(source)
            image = colour.to_srgb(source, background)[0]
            image = image.transpose(_ROTATIONS[orientation]) if orientation in _ROTATIONS else image
        else:
            image = _decode(file, max_pixels, background)[0]
        image = image if region is None else region.apply(image)
        image.thumbnail((side, side), reducing_gap=1.5)
        return image


def digest_of(path: Path) -> bytes | None:
    """SHA-256 of the current file, or None if it cannot be read."""
    try:
        files = encoded.files_of(path)
        if files is not None:
            return files.digest_of(path)
        with readable_file(path) as file:
            return hashlib.file_digest(file, "sha256").digest()
    except (DatasetError, OSError):
        return None


def stats_of(path: str) -> tuple[int, int, int]:
    """Size in bytes, times of modification and change in nanoseconds. Raises OSError."""
    files = encoded.files_of(path)
    return tar_members.stats(path) if files is None else files.stats_of(Path(path))


@contextmanager
def readable_file(
    path: Path, code: str = "E1206", *, most: int | None = tar_members.MAX_BYTES
) -> Iterator[BufferedReader]:
    """Opens a regular file of at most `most` bytes, or a member of a tar archive (`tar_members.py`), for reading. Any
    error in opening or in the body of the `with` becomes a DatasetError with this code."""
    try:
        member = tar_members.member_at(path)
        with member.open() if member is not None else _open_regular(path, most) as file:
            yield file
    except DatasetError:
        raise
    except Unusable as error:
        raise DatasetError(f"{path}: {error}", code=code) from error
    except OSError as error:
        raise DatasetError(f"{path}: {error.strerror or _one_line(error)}", code=code) from error
    except Exception as error:  # a damaged file can make a decoder raise anything
        raise DatasetError(f"{path}: damaged: {_one_line(error)}", code=code) from error


def _open_regular(path: Path, most: int | None) -> BufferedReader:
    # without O_NONBLOCK, opening a named pipe would block forever
    file = open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb")  # noqa: SIM115
    facts = os.fstat(file.fileno())
    if stat.S_ISREG(facts.st_mode) and (most is None or facts.st_size <= most):
        return file
    file.close()
    if stat.S_ISREG(facts.st_mode):
        raise Unusable(tar_members.too_large(facts.st_size))
    raise Unusable("not a regular file")


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__


def _opacity(file: BufferedReader, max_pixels: int) -> Image.Image:
    image, _, _ = _load(file, max_pixels)
    orientation = _orientation(image)
    opacity = colour.opacity(image) or Image.new("L", image.size, 255)
    return opacity.transpose(_ROTATIONS[orientation]) if orientation in _ROTATIONS else opacity


def _decode(
    file: BufferedReader, max_pixels: int, background: str, target: Size | None = None
) -> tuple[Image.Image, Conversion, _Box | None]:
    """The image as displayed, and its conversions. target: the later size, if it may be decoded at reduced size; then
    also returns the region of the result that is the image."""
    image, flags, box = _load(file, max_pixels, target)
    orientation = _orientation(image)
    converted, changes = colour.to_srgb(image, background)
    if orientation in _ROTATIONS:
        return converted.transpose(_ROTATIONS[orientation]), flags | changes | _rotation_flags(orientation), box
    return converted, flags | changes, box


def _load(
    file: BufferedReader, max_pixels: int, target: Size | None = None
) -> tuple[ImageFile, Conversion, _Box | None]:
    image, flags = _open_checked(file, max_pixels)
    if isinstance(image, TiffImagePlugin.TiffImageFile):
        flags |= _rotation_flags(
            _orientation(image)
        )  # Pillow rotates it while loading, and then sets its orientation to 1
    box = _draft(image, target) if target is not None and isinstance(image, JpegImagePlugin.JpegImageFile) else None
    image.load()
    if isinstance(image, PngImagePlugin.PngImageFile) and _ends_black(image) and untrusted.has_too_few_rows(file):
        raise Unusable("truncated")
    return image, flags, box


def _open_checked(file: BufferedReader, max_pixels: int) -> tuple[ImageFile, Conversion]:
    """Opens an image without decoding it, at its first frame; returns it and flags for more frames and more than 8
    bits. Raises Unusable for a size that is not allowed."""
    image = _open_image(file)
    if image.width * image.height > max_pixels:
        raise Unusable(f"{image.width} × {image.height} pixels are more than data.max_pixels ({max_pixels:,})")
    if image.width < 1 or image.height < 1:
        raise Unusable("no pixels")
    flags = Conversion(0)
    if getattr(image, "is_animated", False):
        flags |= Conversion.FIRST_FRAME
        image.seek(0)
    if any(";16" in str(tile) for tile in image.tile):
        flags |= Conversion.DEEP
    return image, flags


def _ends_black(image: ImageFile) -> bool:
    """Whether the last row of an image is all zeros."""
    row = (image.getpixel((column, image.height - 1)) for column in range(image.width))
    return not any(any(pixel) if isinstance(pixel, tuple) else pixel for pixel in row)


def _draft(image: JpegImagePlugin.JpegImageFile, target: Size) -> _Box | None:
    """Selects a reduced decoding size for a JPEG if it is sufficient for the target. Returns the region of the rotated
    result that is the image: its last column and row may extend over the edge."""
    orientation = _orientation(image)
    is_sideways = orientation in _ROTATIONS and orientation >= 5
    width, height = (target.height, target.width) if is_sideways else (target.width, target.height)
    ratio = min(image.width / width, image.height / height)
    by = next((by for by, least in _LEAST if ratio >= by * least), 1)
    if by == 1:
        return None
    sides = image.width / by, image.height / by
    image.draft(None, (image.width // by, image.height // by))
    assert image.size == (math.ceil(sides[0]), math.ceil(sides[1])), (image.size, sides)
    shown, (wide, high) = (image.size[::-1], sides[::-1]) if is_sideways else (image.size, sides)
    left = shown[0] - wide if orientation in (2, 3, 6, 7) else 0.0
    top = shown[1] - high if orientation in (3, 4, 7, 8) else 0.0
    return left, top, left + wide, top + high


def _open_image(file: BufferedReader) -> ImageFile:
    file.seek(0)
    head = file.read(16)
    for magic, at, plugin in _MAGIC:
        if head[at : at + len(magic)] == magic:
            if plugin is TiffImagePlugin.TiffImageFile and untrusted.has_oversized_tag(file):
                raise Unusable("a TIFF entry with more than a million numbers")
            file.seek(0)
            return plugin(file)
    raise Unusable("empty file" if not head else "not an image of a known format")


def _rotation_flags(orientation: int) -> Conversion:
    if orientation not in _ROTATIONS:
        return Conversion(0)
    return Conversion.TURNED | (Conversion.SIDEWAYS if orientation >= 5 else Conversion(0))


def _orientation(image: ImageFile) -> int:
    if (size := len(image.info.get("exif") or b"")) > _MAX_EXIF:
        raise Unusable(f"its EXIF has {size:,} bytes, more than {_MAX_EXIF:,}")
    try:
        # not the method of PngImageFile, which decodes the image first
        return int(Image.Image.getexif(image).get(0x0112, 1))
    except Exception:  # invalid EXIF is no reason to reject a valid image
        return 1


def _check_png(file: BufferedReader) -> bool:
    """Compares the checksums of a PNG's chunks, which Pillow skips for those of pixels. Returns whether metadata
    follows the pixels, which Pillow reads only after it has decoded them."""
    file.seek(0)
    if file.read(8) != b"\x89PNG\r\n\x1a\n":
        return False
    kind, has_pixels, has_late_metadata = b"", False, False
    while kind != b"IEND":
        head = file.read(8)
        if len(head) < 8:
            raise Unusable("truncated")
        length, kind = struct.unpack(">I4s", head)
        has_pixels |= kind == b"IDAT"
        has_late_metadata |= has_pixels and kind not in (b"IDAT", b"IEND")
        checksum = zlib.crc32(kind)
        while length:
            part = file.read(min(length, 1 << 20))
            if not part:
                raise Unusable("truncated")
            checksum, length = zlib.crc32(part, checksum), length - len(part)
        # chunks with a lower-case first letter are optional, so damage in them is ignored
        if kind[:1].isupper() and file.read(4) != struct.pack(">I", checksum):
            raise Unusable(f"damaged: wrong checksum in chunk {kind.decode('latin-1')!r}")
        if not kind[:1].isupper():
            file.read(4)
    return has_late_metadata
