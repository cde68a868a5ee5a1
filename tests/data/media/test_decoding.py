"""Every kind of image file is used, converted or refused with a reason."""

from __future__ import annotations

import hashlib
import io
import json
import os
import socket
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageCms, PngImagePlugin
from safetensors.numpy import load_file

from mezzotint.data.media import decoding
from mezzotint.data.media.colour import Conversion
from mezzotint.errors import DatasetError
from mezzotint.shapes import Size
from mezzotint.stages import Placement
from support.images import LIMIT, corners, pixels_of, whole
from support.messages import refused

PARITY = Path(__file__).parents[2] / "parity" / "data" / "diffusers"


def refusal(path: Path, limit: int = LIMIT) -> str:
    for attempt in (
        lambda: decoding.probe(path, limit),
        lambda: decoding.decode_image(
            path, whole(Size(8, 8)), resize="lanczos", background="#ffffff", max_pixels=limit
        ),
    ):
        with refused("E1206") as caught:
            attempt()
        assert str(path) in caught.value.message
    return caught.value.message


@pytest.mark.parametrize("ending", ["png", "bmp", "tif", "webp", "ppm", "gif", "jpg", "avif"])
def test_plain_images_are_read_and_hashed(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"a.{ending}"
    corners().save(path, **({"lossless": True} if ending == "webp" else {"quality": 95} if ending == "jpg" else {}))
    probe = decoding.probe(path, LIMIT)
    assert probe == decoding.Probe(Size(30, 20), hashlib.sha256(path.read_bytes()).digest(), 0)
    close = 40 if ending in ("jpg", "avif") else 0
    middle = pixels_of(path).astype(int)[5, 5]
    assert np.abs(middle - [255, 0, 0]).max() <= close


def test_wrong_suffix_does_not_matter(tmp_path: Path) -> None:
    path = tmp_path / "photo.jpg"
    corners().save(path, "PNG")
    assert decoding.probe(path, LIMIT).size == Size(30, 20)


def oriented(upright: Image.Image, orientation: int) -> Image.Image:
    """What a camera stores so that EXIF `orientation` shows it upright (TIFF 6.0, tag 274)."""
    t = Image.Transpose
    undo = {2: t.FLIP_LEFT_RIGHT, 3: t.ROTATE_180, 4: t.FLIP_TOP_BOTTOM, 5: t.TRANSPOSE}
    undo |= {6: t.ROTATE_90, 7: t.TRANSVERSE, 8: t.ROTATE_270}
    return upright.transpose(undo[orientation]) if orientation in undo else upright


@pytest.mark.parametrize(
    ("ending", "orientation"), [("jpg", n) for n in range(1, 9)] + [("png", 6), ("tif", 6), ("webp", 6)]
)
def test_exif_orientation_is_applied(tmp_path: Path, orientation: int, ending: str) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    path = tmp_path / f"a.{ending}"
    stored = oriented(corners(), orientation)
    stored.save(path, exif=exif, **({"quality": 95, "subsampling": 0} if ending == "jpg" else {"lossless": True}))
    probe = decoding.probe(path, LIMIT)
    assert probe.size == Size(30, 20)
    assert probe.conversions == (Conversion.TURNED if orientation > 1 else 0) | (
        Conversion.SIDEWAYS if orientation > 4 else 0
    )
    assert np.abs(pixels_of(path).astype(int) - np.asarray(corners())).max() <= 60


@pytest.mark.filterwarnings("ignore:Corrupt EXIF")
def test_broken_exif_is_ignored(tmp_path: Path) -> None:
    path = tmp_path / "a.jpg"
    corners().save(path, exif=b"Exif\0\0MM\0*\xff\xff\xff\xffgarbage")
    assert decoding.probe(path, LIMIT) == decoding.Probe(Size(30, 20), hashlib.sha256(path.read_bytes()).digest(), 0)


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(width: int, height: int, *chunks: bytes, depth: int = 8, colour: int = 2) -> bytes:
    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + head + b"".join(chunks) + chunk(b"IEND", b"")


def test_sixteen_bit_colour_is_scaled_and_reported(tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    rows = (b"\0" + np.full((4, 3), 0x8040, ">u2").tobytes()) * 4
    path.write_bytes(png(4, 4, chunk(b"IDAT", zlib.compress(rows)), depth=16))
    assert decoding.probe(path, LIMIT).conversions == Conversion.DEEP
    assert pixels_of(path)[0, 0].tolist() == [128, 128, 128]


@pytest.mark.parametrize("ending", ["png", "gif", "webp", "tif", "avif"])
def test_first_of_several_frames_is_used_and_reported(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"a.{ending}"
    frames = [Image.new("RGB", (16, 16), colour) for colour in ("#ff0000", "#00ff00", "#0000ff")]
    options: dict[str, Any] = {"lossless": True} if ending == "webp" else {}
    frames[0].save(path, save_all=True, append_images=frames[1:], **options)
    assert decoding.probe(path, LIMIT).conversions == Conversion.FIRST_FRAME
    assert np.abs(pixels_of(path)[8, 8].astype(int) - [255, 0, 0]).max() <= 6


@pytest.mark.parametrize("ending", ["png", "jpg", "gif", "webp", "tif", "bmp", "avif"])
def test_truncated_files_are_refused(tmp_path: Path, ending: str) -> None:
    buffer = io.BytesIO()
    noise = Image.effect_noise((64, 64), 90).convert("RGB")
    noise.save(buffer, {"jpg": "JPEG", "tif": "TIFF"}.get(ending, ending.upper()))
    path = tmp_path / f"a.{ending}"
    for part in (0.1, 0.5, 0.9):
        path.write_bytes(buffer.getvalue()[: int(len(buffer.getvalue()) * part)])
        with refused("E1206"):
            decoding.probe(path, LIMIT)


def test_wrong_checksum_is_detected(tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    rows = (b"\0" + bytes(12)) * 4
    data = bytearray(png(4, 4, chunk(b"IDAT", zlib.compress(rows, 0))))
    data[data.index(b"IDAT") + 20] ^= 1
    path.write_bytes(data)
    with pytest.raises(DatasetError, match=r"wrong checksum in chunk 'IDAT'"):
        decoding.probe(path, LIMIT)


def test_decompression_bomb_is_refused_by_its_header(tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    path.write_bytes(png(50_000, 50_000, chunk(b"IDAT", zlib.compress(bytes(10_000)))))
    assert "50000 × 50000 pixels are more than data.max_pixels (1,000,000)" in refusal(path)


def test_pixel_limit_does_not_depend_on_pillow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.png"
    corners().save(path)
    assert "more than data.max_pixels (599)" in refusal(path, 599)
    assert decoding.probe(path, 600).size == Size(30, 20)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 10)
    assert decoding.probe(path, 600).size == Size(30, 20)


def test_text_bomb_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    text = b"k\0\0" + zlib.compress(bytes(PngImagePlugin.MAX_TEXT_CHUNK + 10))
    rows = (b"\0" + bytes(12)) * 4
    path.write_bytes(png(4, 4, chunk(b"zTXt", text), chunk(b"IDAT", zlib.compress(rows))))
    assert "too large" in refusal(path)


@pytest.mark.parametrize("is_big", [False, True])
def test_tiff_entry_with_millions_of_values_is_refused(tmp_path: Path, is_big: bool) -> None:
    entries = [(256, 4, 1, 8), (257, 4, 1, 8), (258, 3, 1, 8), (262, 3, 1, 1), (273, 4, 1 << 21, 512), (278, 4, 1, 8)]
    entry, number, word = ("<HHQQ", "<Q", "<Q") if is_big else ("<HHII", "<H", "<I")
    head = b"II+\0\x08\0\0\0" if is_big else b"II*\0"
    body = b"".join(struct.pack(entry, *one) for one in entries)
    data = head + struct.pack(word, len(head) + struct.calcsize(word)) + struct.pack(number, len(entries)) + body
    (tmp_path / "a.tif").write_bytes(data.ljust(512, b"\0") + bytes(4 << 21))
    assert "a TIFF entry with more than a million numbers" in refusal(tmp_path / "a.tif")


def test_large_exif_is_refused_before_it_is_parsed(tmp_path: Path) -> None:
    exif = b"II*\0\x08\0\0\0" + struct.pack("<HHHII", 1, 0x0112, 3, 1 << 21, 8) + bytes(5 << 20)
    (tmp_path / "a.png").write_bytes(png(2, 1, chunk(b"eXIf", exif), chunk(b"IDAT", zlib.compress(bytes(7)))))
    assert "its EXIF has 5,242,908 bytes" in refusal(tmp_path / "a.png")


def test_large_colour_profile_is_refused(tmp_path: Path) -> None:
    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes() + bytes(16 << 20)
    corners().save(tmp_path / "a.webp", icc_profile=profile)
    assert "its colour profile has 16,777" in refusal(tmp_path / "a.webp")


def make_empty(path: Path) -> None:
    path.write_bytes(b"")


def make_text(path: Path) -> None:
    path.write_text("<html>404</html>")


def make_svg(path: Path) -> None:
    path.write_text("<svg xmlns='http://www.w3.org/2000/svg'/>")


def make_eps(path: Path) -> None:
    path.write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EOF\n")


def make_float(path: Path) -> None:
    Image.fromarray(np.ones((4, 4), np.float32)).save(path, "TIFF")


def make_socket(path: Path) -> None:
    here = os.getcwd()
    os.chdir(path.parent)  # the name of a socket has at most 107 bytes
    try:
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(path.name)
    finally:
        os.chdir(here)


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (make_empty, "empty file"),
        (make_text, "not an image"),
        (make_svg, "not an image"),
        (make_eps, "not an image"),
        (make_float, "float pixels"),
        (os.mkfifo, "not a regular file"),
        (os.mkdir, ""),
        (make_socket, ""),
        (lambda path: path.symlink_to(path), ""),
        (lambda path: None, "No such file"),
    ],
)
@pytest.mark.timeout(20)
def test_files_that_are_not_images_are_refused_with_the_reason(
    tmp_path: Path, make: Callable[[Path], object], reason: str
) -> None:
    path = tmp_path / "a.png"
    make(path)
    assert reason in refusal(path)


def test_digest_of_unreadable_file_is_none(tmp_path: Path) -> None:
    assert decoding.digest_of(tmp_path / "none.png") is None


def test_image_is_resized_cropped_and_flipped(tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    corners(60, 20).save(path)
    placement = Placement(Size(10, 10), Size(30, 10), (0, 12), flipped=True)
    pixels = decoding.decode_image(path, placement, resize="box", background="#ffffff", max_pixels=LIMIT)
    expected = np.asarray(corners(30, 10))[:, 12:22][:, ::-1].transpose(2, 0, 1)
    assert pixels.dtype == np.uint8
    assert pixels.flags.c_contiguous
    assert (pixels == expected).all()


@pytest.mark.parametrize("name", ["lanczos", "bicubic", "bilinear", "box"])
def test_filters_are_antialiased(tmp_path: Path, name: str) -> None:
    path = tmp_path / "a.png"
    stripes = np.zeros((64, 64, 3), np.uint8)
    stripes[:, ::2] = 255
    Image.fromarray(stripes).save(path)
    pixels = decoding.decode_image(
        path, Placement(Size(8, 8), Size(8, 8), (0, 0)), resize=name, background="#ffffff", max_pixels=LIMIT
    )
    assert np.abs(pixels.astype(int) - 127).max() < 12


@pytest.mark.parametrize(("number", "name"), [(0, "lanczos"), *((number, "bilinear") for number in range(6))])
def test_pixels_match_the_diffusers_scripts(number: int, name: str) -> None:
    record = json.loads((PARITY / "transforms.json").read_text())[str(number)]
    height, width = record["resized_height_width"]
    placement = Placement(Size(64, 64), Size(width, height), tuple(record["sdxl_center_crop_top_left"]))
    path = PARITY / "shapes6" / f"{number:04}.png"
    pixels = decoding.decode_image(path, placement, resize=name, background="#ffffff", max_pixels=LIMIT)
    assert (pixels == load_file(PARITY / "transforms_uint8.safetensors")[f"{number}.{name}.center_crop"]).all()


def photo(width: int, height: int, seed: int = 0) -> Image.Image:
    """Large and small shapes with few details of one pixel, as in a large photo."""
    draw, layers = np.random.default_rng(seed), np.zeros((height, width, 3))
    for cells, strength in ((3, 150.0), (12, 50.0), (40, 12.0)):
        small = Image.fromarray(draw.integers(0, 256, (cells, cells, 3), dtype=np.uint8))
        layers += strength / 255 * (np.asarray(small.resize((width, height), Image.Resampling.BICUBIC), float) - 128)
    return Image.fromarray(np.clip(layers + 128, 0, 255).astype(np.uint8))


def fit(path: Path, size: tuple[int, int], *, scaled: bool, resize: str = "lanczos", antialias: bool = True) -> Any:
    placed = Placement(Size(*size), Size(*size), (0, 0))
    return decoding.decode_image(
        path, placed, resize=resize, background="#ffffff", max_pixels=LIMIT, scaled=scaled, antialias=antialias
    )


def decibels(one: Any, other: Any) -> float:
    return float(10 * np.log10(255**2 / np.mean((one.astype(float) - other.astype(float)) ** 2)))


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """The sizes of decoded images."""
    sizes: list[tuple[int, int]] = []
    true = decoding.colour.to_srgb
    monkeypatch.setattr(
        decoding.colour, "to_srgb", lambda image, colour: sizes.append(image.size) or true(image, colour)
    )
    return sizes


@pytest.mark.parametrize("orientation", range(1, 9))
def test_large_jpeg_is_decoded_at_reduced_size(
    tmp_path: Path, orientation: int, decoded: list[tuple[int, int]]
) -> None:
    path, exif = tmp_path / "a.jpg", Image.Exif()
    exif[0x0112] = orientation
    photo(603, 407).save(path, quality=95, exif=exif)
    size = (101, 68) if orientation < 5 else (68, 101)
    whole, smaller = fit(path, size, scaled=False), fit(path, size, scaled=True)
    assert decoded == [(603, 407), (302, 204)]
    assert not np.array_equal(whole, smaller)
    assert decibels(whole, smaller) >= 50


@pytest.mark.parametrize(
    ("size", "by"), [((960, 16), 1), ((216, 216), 1), ((168, 168), 2), ((67, 67), 4), ((29, 29), 8)]
)
def test_reduced_size_is_large_enough_for_the_target(
    tmp_path: Path, size: tuple[int, int], by: int, decoded: list[tuple[int, int]]
) -> None:
    path = tmp_path / "a.jpg"
    photo(960, 960).save(path, quality=95)
    whole, smaller = fit(path, size, scaled=False), fit(path, size, scaled=True)
    assert decoded == [(960, 960), (960 // by, 960 // by)]
    assert np.array_equal(whole, smaller) if by == 1 else decibels(whole, smaller) >= 50


@pytest.mark.parametrize(("resize", "antialias", "ending"), [
    ("nearest", True, "jpg"), ("area", True, "jpg"), ("bicubic", False, "jpg"), ("lanczos", True, "png"),
])  # fmt: skip
def test_other_filters_and_formats_are_not_decoded_smaller(
    tmp_path: Path, resize: str, antialias: bool, ending: str
) -> None:
    path = tmp_path / f"a.{ending}"
    photo(400, 400).save(path)
    options: dict[str, Any] = {"resize": resize, "antialias": antialias}
    one, other = (fit(path, (40, 40), scaled=scaled, **options) for scaled in (False, True))
    assert np.array_equal(one, other)
    one, other = (decoding.version(scaled=scaled, **options) for scaled in (False, True))
    assert (one == other) == (ending == "jpg")
    assert (one == decoding.OPENCV) == (resize == "area" or not antialias)


@pytest.mark.parametrize("ending", ["jpg", "png"])
def test_thumbnail_is_upright_and_within_its_size(tmp_path: Path, ending: str) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    path = tmp_path / f"a.{ending}"
    oriented(corners(900, 600), 6).save(path, exif=exif, **({"quality": 95} if ending == "jpg" else {}))
    image = decoding.thumbnail(path, 64, background="#ffffff", max_pixels=LIMIT)
    assert (image.mode, image.size) == ("RGB", (64, 43))
    at_corners = [np.asarray(image)[y, x] for y, x in ((5, 5), (5, 58), (38, 5), (38, 58))]
    assert np.abs(np.array(at_corners, int) - [[255, 0, 0], [0, 255, 0], [0, 0, 255], [255, 255, 0]]).max() < 12
    with refused("E1206", "more than data.max_pixels"):
        decoding.thumbnail(path, 64, background="#ffffff", max_pixels=1000)


def test_small_jpeg_thumbnail_does_not_depend_on_its_file(tmp_path: Path) -> None:
    Image.linear_gradient("L").convert("RGB").save(tmp_path / "a.jpg")
    image = decoding.thumbnail(tmp_path / "a.jpg", 320, background="white", max_pixels=1 << 20)
    assert image.size == (256, 256)
    assert image.getpixel((0, 255)) != image.getpixel((0, 0))
