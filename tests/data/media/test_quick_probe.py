"""`decoding.probe_quickly` returns the same as `decoding.probe` without decoding images of the usual kinds."""

from __future__ import annotations

import io
import itertools
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageCms, PngImagePlugin

from mezzotint.data.media import decoding
from support.images import LIMIT, corners
from support.messages import refused

SIZES = ((1, 1), (3, 2), (16, 16), (17, 65), (300, 20))
KINDS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("JPEG", {"quality": 80}),
    ("JPEG", {"progressive": True}),
    ("JPEG", {"subsampling": 0, "optimize": True, "comment": b"a comment", "dpi": (300, 300)}),
    ("PNG", {}),
    ("PNG", {"compress_level": 0}),
    ("WEBP", {"quality": 50}),
    ("WEBP", {"lossless": True}),
)


def exif(orientation: int, order: str = "<", *, more: bool = False) -> bytes:
    """EXIF with an orientation, and with two other tags if `more`."""
    entries = [struct.pack(f"{order}HHIHH", 0x0112, 3, 1, orientation, 0)]
    if more:
        entries = [
            struct.pack(f"{order}HHII", 0x0100, 4, 1, 4000),
            *entries,
            struct.pack(f"{order}HHIHH", 0x213, 3, 1, 1, 0),
        ]
    head = (b"II*\0" if order == "<" else b"MM\0*") + struct.pack(f"{order}IH", 8, len(entries))
    return b"Exif\0\0" + head + b"".join(entries) + bytes(4)


def saved(image: Image.Image, kind: str, **options: Any) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def noise(size: tuple[int, int], mode: str = "RGB") -> Image.Image:
    layers = {"RGB": 3, "L": 1, "RGBA": 4, "CMYK": 4}[mode]
    pixels = np.random.default_rng(size).integers(0, 256, (size[1], size[0], layers), dtype=np.uint8)
    return Image.frombytes(mode, size, pixels.tobytes())


def plain() -> Iterator[bytes]:
    """Images that need not be decoded."""
    for size, (kind, options) in itertools.product(SIZES, KINDS):
        for mode in ("RGB",) if kind == "WEBP" else ("RGB", "L"):
            yield saved(noise(size, mode), kind, **options)
    for orientation, kind, order in itertools.product(range(1, 9), ("JPEG", "PNG", "WEBP"), "<>"):
        yield saved(noise((30, 20)), kind, exif=exif(orientation, order, more=orientation % 2 == 0))
    for profile, kind in itertools.product(("sRGB", "LAB"), ("JPEG", "PNG", "WEBP")):
        data = ImageCms.ImageCmsProfile(ImageCms.createProfile(profile)).tobytes()
        yield saved(noise((30, 20)), kind, icc_profile=data)
    yield saved(noise((30, 20)), "JPEG", icc_profile=b"no profile at all")
    yield saved(noise((30, 20)), "JPEG", icc_profile=bytes(100_000))
    yield saved(noise((30, 20)), "JPEG", xmp=b'<x:xmpmeta tiff:Orientation="6"/>')
    yield saved(noise((30, 20)), "JPEG", exif=exif(6)[:-8])


def late(kind: bytes, body: bytes) -> bytes:
    """A PNG with a chunk after its pixels."""
    data = saved(corners(), "PNG")
    chunk = struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
    return data[:-12] + chunk + data[-12:]


def odd() -> Iterator[bytes]:
    """Images that must be decoded."""
    yield saved(noise((30, 20), "CMYK"), "JPEG")
    for kind in ("PNG", "WEBP"):
        yield saved(noise((30, 20), "RGBA"), kind)
        yield saved(noise((30, 20)), kind, save_all=True, append_images=[noise((30, 20), "L").convert("RGB")])
    yield saved(noise((30, 20)).convert("P"), "PNG")
    yield saved(noise((30, 20)), "PNG", transparency=(1, 2, 3))
    yield saved(Image.fromarray(np.full((5, 6), 40_000, np.uint16)), "PNG")
    yield late(b"eXIf", exif(8)[6:])
    yield late(b"iTXt", b'XML:com.adobe.xmp\0\0\0\0\0<x:xmpmeta tiff:Orientation="6"/>')
    for kind in ("GIF", "BMP", "TIFF", "AVIF", "PPM"):
        yield saved(noise((30, 20)), kind)


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The formats of the images that Pillow decodes."""
    formats: list[str] = []
    for plugin in (
        decoding.JpegImagePlugin.JpegImageFile,
        PngImagePlugin.PngImageFile,
        decoding.WebPImagePlugin.WebPImageFile,
    ):
        true = plugin.load
        monkeypatch.setattr(plugin, "load", lambda image, true=true: formats.append(image.format) or true(image))
    return formats


@pytest.mark.filterwarnings("ignore:Corrupt EXIF")
def test_plain_images_are_not_decoded(tmp_path: Path, loads: list[str]) -> None:
    path = tmp_path / "a"
    for data in plain():
        path.write_bytes(data)
        loads.clear()
        glanced = decoding.probe_quickly(path, LIMIT)
        assert not loads
        assert glanced == decoding.probe(path, LIMIT)
        assert loads


def test_other_images_are_decoded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, decoded, true = tmp_path / "a", [], decoding.probe
    monkeypatch.setattr(decoding, "probe", lambda *rest: decoded.append(1) or true(*rest))
    for data in odd():
        path.write_bytes(data)
        decoded.clear()
        assert decoding.probe_quickly(path, LIMIT) == true(path, LIMIT)
        assert decoded


def test_orientation_after_the_pixels_is_used(tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    path.write_bytes(late(b"eXIf", exif(8)[6:]))
    assert decoding.probe_quickly(path, LIMIT).size.width == corners().height


@pytest.mark.parametrize(("kind", "options"), KINDS)
def test_truncated_file_is_refused_like_by_a_decode(tmp_path: Path, kind: str, options: dict[str, Any]) -> None:
    data = saved(noise((64, 48)), kind, exif=exif(6), **options)
    path = tmp_path / "a"
    for length in sorted({1, 2, 3, 11, 12, 20, 30, *range(1, len(data), len(data) // 40)}):
        path.write_bytes(data[:length])
        with refused("E1206") as of_a_decode:
            decoding.probe(path, LIMIT)
        with refused("E1206") as of_a_glance:
            decoding.probe_quickly(path, LIMIT)
        assert of_a_glance.value.message == of_a_decode.value.message


@pytest.mark.filterwarnings("ignore")
def test_damaged_header_gives_the_same_result_as_a_decode(tmp_path: Path) -> None:
    """One byte near the start is changed; the result equals that of a decode unless the decode refuses the image."""
    path, draw, agreed = tmp_path / "a", np.random.default_rng(0), 0
    for kind, options in KINDS:
        data = saved(noise((33, 21)), kind, exif=exif(6, more=True), **options)
        for _ in range(30):
            damaged = bytearray(data)
            damaged[int(draw.integers(0, min(len(data), 400)))] = int(draw.integers(0, 256))
            path.write_bytes(damaged)
            try:
                sound = decoding.probe(path, LIMIT)
            except decoding.DatasetError:
                continue
            assert decoding.probe_quickly(path, LIMIT) == sound
            agreed += 1
    assert agreed > 25


def test_limits_are_the_same_as_of_a_decode(tmp_path: Path) -> None:
    path = tmp_path / "a.jpg"
    path.write_bytes(saved(noise((30, 20)), "JPEG"))
    with refused("E1206", "more than data.max_pixels"):
        decoding.probe_quickly(path, 599)
    path.write_bytes(b"")
    with refused("E1206", "empty file"):
        decoding.probe_quickly(path, LIMIT)
