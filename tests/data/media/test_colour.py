"""Conversion of pixels of any kind to 8-bit sRGB."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageCms

from mezzotint.data.media import decoding
from mezzotint.data.media.colour import Conversion, conversions_of
from support.images import LIMIT, corners, pixels_of


def test_grey_palette_and_one_bit_become_rgb_without_note(tmp_path: Path) -> None:
    for mode in ("L", "P", "1"):
        path = tmp_path / f"{mode}.png"
        corners().convert(mode).save(path)
        assert decoding.probe(path, LIMIT).conversions == 0
        assert (pixels_of(path) == np.asarray(corners().convert(mode).convert("RGB"))).all()


def test_transparency_shows_only_the_background(tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    data = np.zeros((4, 4, 4), np.uint8)
    data[:, :2] = (255, 0, 0, 0)  # red, but invisible
    data[:, 2:] = (0, 0, 255, 128)
    Image.fromarray(data, "RGBA").save(path)
    assert decoding.probe(path, LIMIT).conversions == Conversion.ALPHA
    pixels = pixels_of(path, "#00ff00")
    assert pixels[0, 0].tolist() == [0, 255, 0]
    assert np.abs(pixels[0, 3].astype(int) - [0, 127, 128]).max() <= 1


def test_full_opacity_is_no_conversion(tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    corners().convert("RGBA").save(path)
    assert decoding.probe(path, LIMIT).conversions == 0


@pytest.mark.parametrize("mode", ["P", "L", "RGB", "1", "LA", "PA"])
def test_transparent_modes_are_composited(tmp_path: Path, mode: str) -> None:
    path = tmp_path / "a.png"
    if mode == "PA":
        image = corners().convert("P")
        path = tmp_path / "a.gif"
        image.save(path, transparency=image.getpixel((0, 0)))
    elif mode == "LA":
        Image.merge("LA", [Image.new("L", (4, 4), 9), Image.new("L", (4, 4), 0)]).save(path)
    else:
        image = Image.new("L", (4, 4), 0).convert(mode)
        image.save(path, transparency=(0, 0, 0) if mode == "RGB" else 0)
    assert decoding.probe(path, LIMIT).conversions & Conversion.ALPHA
    assert pixels_of(path, "#123456")[0, 0].tolist() == [0x12, 0x34, 0x56]


@pytest.mark.parametrize("ending", ["png", "tif", "pgm"])
def test_sixteen_bit_grey_keeps_its_mean(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"a.{ending}"
    ramp = np.linspace(0, 65535, 256 * 16).astype(np.uint16).reshape(16, 256)
    Image.fromarray(ramp).save(path)
    assert decoding.probe(path, LIMIT).conversions == Conversion.DEEP
    pixels = pixels_of(path)
    assert abs(float(pixels.mean()) - 127.5) < 0.5
    assert pixels.min() == 0
    assert pixels.max() == 255


def test_signed_and_wide_tiff_are_scaled_by_their_type(tmp_path: Path) -> None:
    path = tmp_path / "a.tif"
    Image.fromarray(np.full((4, 4), 2**30, np.int32)).save(path)
    assert decoding.probe(path, LIMIT).conversions == Conversion.DEEP
    assert abs(int(pixels_of(path)[0, 0, 0]) - 128) <= 1


def test_cmyk_becomes_rgb(tmp_path: Path) -> None:
    path = tmp_path / "a.jpg"
    Image.new("CMYK", (16, 16), (0, 255, 255, 0)).save(path, quality=95)
    assert decoding.probe(path, LIMIT).conversions == Conversion.CMYK
    assert np.abs(pixels_of(path)[8, 8].astype(int) - [255, 0, 0]).max() <= 8


def printer_profile(lightness: int, a: int, b: int) -> bytes:
    """A CMYK profile that maps every mixture of inks to the same colour (ICC.1:2001-04, lut8Type)."""
    neutral = b"".join(struct.pack(">i", 65536 * (i % 4 == 0)) for i in range(9))
    straight = bytes(range(256))
    table = (
        b"mft1\0\0\0\0" + bytes([4, 3, 2, 0]) + neutral + straight * 4 + bytes([lightness, a, b]) * 16 + straight * 3
    )
    white = b"XYZ \0\0\0\0" + struct.pack(">3i", 63190, 65536, 54061)
    tags = struct.pack(">I", 2)
    tags += b"A2B0" + struct.pack(">II", 156, len(table)) + b"wtpt" + struct.pack(">II", 156 + len(table), len(white))
    size = 156 + len(table) + len(white)
    head = struct.pack(">I4sI4s4s4s12x4s", size, bytes(4), 0x02400000, b"prtr", b"CMYK", b"Lab ", b"acsp")
    head += bytes(68 - len(head)) + struct.pack(">3i", 63190, 65536, 54061)
    return head + bytes(128 - len(head)) + tags + table + white


def test_cmyk_is_converted_by_its_profile(tmp_path: Path) -> None:
    path = tmp_path / "a.tif"
    Image.new("CMYK", (16, 16), (0, 255, 255, 0)).save(path, icc_profile=printer_profile(160, 70, 190))
    assert decoding.probe(path, LIMIT).conversions == Conversion.CMYK | Conversion.PROFILE
    red, green, blue = pixels_of(path)[0, 0].tolist()
    assert green > red + 60  # red ink, but green according to the profile
    assert green > blue + 60


def test_profile_for_another_mode_is_ignored_and_reported(tmp_path: Path) -> None:
    path = tmp_path / "a.tif"
    rgb = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    Image.new("CMYK", (16, 16), (0, 255, 255, 0)).save(path, icc_profile=rgb)
    assert decoding.probe(path, LIMIT).conversions == Conversion.CMYK | Conversion.BAD_PROFILE


def test_grey_pixels_with_the_profile_of_a_colour_image_are_converted(tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    rgb = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    Image.new("L", (8, 8), 90).save(path, icc_profile=rgb)
    assert decoding.probe(path, LIMIT).conversions == 0
    assert pixels_of(path)[0, 0].tolist() == [90, 90, 90]


def rotated_profile() -> bytes:
    """sRGB with rotated primaries: red in the file is displayed as green."""
    profile = bytearray(ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes())
    tags = {}
    for i in range(struct.unpack(">I", profile[128:132])[0]):
        at = 132 + 12 * i
        tags[bytes(profile[at : at + 4])] = at + 4
    entries = [bytes(profile[tags[name] : tags[name] + 8]) for name in (b"rXYZ", b"gXYZ", b"bXYZ")]
    for name, entry in zip((b"rXYZ", b"gXYZ", b"bXYZ"), entries[1:] + entries[:1], strict=True):
        profile[tags[name] : tags[name] + 8] = entry
    return bytes(profile)


@pytest.mark.parametrize("mode", ["RGB", "RGBA", "P"])
def test_colour_profile_is_converted_to_srgb(tmp_path: Path, mode: str) -> None:
    path = tmp_path / "a.png"
    Image.new("RGB", (8, 8), "#ff0000").convert(mode).save(path, icc_profile=rotated_profile())
    assert decoding.probe(path, LIMIT).conversions == Conversion.PROFILE
    assert np.abs(pixels_of(path)[0, 0].astype(int) - [0, 255, 0]).max() <= 3


def test_srgb_profile_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    noise = Image.effect_noise((32, 32), 90).convert("RGB")
    noise.save(path, icc_profile=ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes())
    assert decoding.probe(path, LIMIT).conversions == 0
    assert (pixels_of(path) == np.asarray(noise)).all()


def test_broken_profile_is_ignored_and_reported(tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    corners().save(path, icc_profile=b"no profile at all")
    assert decoding.probe(path, LIMIT).conversions == Conversion.BAD_PROFILE
    assert (pixels_of(path) == np.asarray(corners())).all()


def test_lab_becomes_rgb(tmp_path: Path) -> None:
    path = tmp_path / "a.tif"
    srgb, lab = ImageCms.createProfile("sRGB"), ImageCms.createProfile("LAB")
    stored = ImageCms.profileToProfile(Image.new("RGB", (8, 8), "#c04020"), srgb, lab, outputMode="LAB")
    stored.info.pop("icc_profile", None)
    stored.save(path)
    assert decoding.probe(path, LIMIT).conversions == Conversion.COLOUR_SPACE
    assert np.abs(pixels_of(path)[0, 0].astype(int) - [0xC0, 0x40, 0x20]).max() <= 4


def test_conversions_are_described() -> None:
    assert conversions_of(Conversion.ALPHA | Conversion.CMYK) == (
        "transparency composited on the background colour",
        "CMYK to RGB",
    )
    assert all(conversions_of(flag) for flag in Conversion)
