# ruff: noqa: E501 (an entry a line)
"""Images and clips: the rows F7 and F9."""

from __future__ import annotations

import io
import os
import struct
import zlib
from functools import partial
from pathlib import Path

import numpy as np
from PIL import Image

from support.hostile import seeds
from support.hostile.entry import Content, Entry, Make, all_of, file

_SOUND = file("sound.png", seeds.image_file(size=(64, 64)))


def _beside(name: str, content: Content) -> Make:
    """A file beside a sound image."""
    return all_of(file(name, content), _SOUND)


def chunk(kind: bytes, body: bytes, checksum: int | None = None) -> bytes:
    """A chunk of a PNG."""
    check = zlib.crc32(kind + body) if checksum is None else checksum
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", check)


def png(width: int, height: int, body: bytes, *more: bytes, depth: int = 8, colour: int = 2) -> bytes:
    """A PNG of a header and compressed bytes. more: chunks between them."""
    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0))
    data = chunk(b"IDAT", zlib.compress(body))
    return b"\x89PNG\r\n\x1a\n" + head + b"".join(more) + data + chunk(b"IEND", b"")


def _rows(width: int, height: int) -> bytes:
    return (b"\0" + bytes(3 * width)) * height


def _turned(orientation: int) -> bytes:
    exif = Image.Exif()
    exif[0x0112] = orientation
    return seeds.image_file("JPEG", exif=exif.tobytes())


def _animated(kind: str) -> bytes:
    file_ = io.BytesIO()
    frames = [Image.new("RGB", (20, 16), (40 * n, 0, 0)) for n in range(4)]
    frames[0].save(file_, kind, save_all=True, append_images=frames[1:], duration=50)
    return file_.getvalue()


def _of_mode(mode: str, kind: str = "PNG") -> bytes:
    file_ = io.BytesIO()
    if mode == "F":
        Image.fromarray(np.linspace(0, 1, 64, dtype=np.float32).reshape(8, 8)).save(file_, kind)
    elif mode == "I;16":
        Image.fromarray((np.arange(64, dtype=np.uint16) * 1000).reshape(8, 8)).save(file_, kind)
    else:
        Image.new("RGB", (20, 16), (9, 80, 200)).convert(mode).save(file_, kind)
    return file_.getvalue()


def _profile(body: bytes) -> bytes:
    return png(8, 8, _rows(8, 8), chunk(b"iCCP", b"x\0\0" + zlib.compress(body)))


def _tiff(entries: list[tuple[int, int, int, int]], following: int = 0) -> bytes:
    body = b"".join(struct.pack("<HHII", *one) for one in entries)
    return b"II*\0" + struct.pack("<IH", 8, len(entries)) + body + struct.pack("<I", following)


def _cut(kind: str, share: float) -> bytes:
    whole = seeds.image_file(kind, size=(200, 160))
    return whole[: int(len(whole) * share)]


def _ok(id_: str, fault: str, make: Make, **more: object) -> Entry:
    return Entry(id=f"image-{id_}", reader="image", fault=fault, row="F7", make=make, expected="ok", **more)  # type: ignore[arg-type]


def _skipped(id_: str, fault: str, name: str, content: Content, says: str = "", **more: object) -> Entry:
    make = _beside(name, content)
    return Entry(
        id=f"image-{id_}", reader="image", fault=fault, row="F7", make=make, expected="S", says=says, names=name,
        **more,  # type: ignore[arg-type]
    )  # fmt: skip


_EXIF_BOMB = b"Exif\0\0II*\0\x08\0\0\0" + struct.pack("<H", 65535) + bytes(2000)
_USED = [
    _ok(f"turned-{n}", f"EXIF says that it is turned the way {n}", _beside("x.jpg", _turned(n)), is_quick=n in (6, 9))
    for n in (1, 2, 3, 4, 5, 6, 7, 8, 9, 0)
] + [
    _ok("exif-broken", "EXIF whose table has 65,535 entries and ends", _beside("x.jpg", seeds.image_file("JPEG", exif=_EXIF_BOMB)), is_quick=True),
    _ok("1x1", "one pixel", _beside("x.png", seeds.image_file(size=(1, 1))), is_quick=True),
    _ok("30000x1", "one pixel high and 30,000 wide", _beside("x.png", seeds.image_file(size=(30_000, 1))), is_quick=True),
    _ok("1x30000", "one pixel wide and 30,000 high", _beside("x.png", seeds.image_file(size=(1, 30_000)))),
    *(_ok(f"mode-{mode}", f"a PNG of mode {mode}", _beside("x.png", _of_mode(mode)), is_quick=mode in ("I;16", "P")) for mode in ("1", "L", "LA", "P", "RGBA", "I;16")),
    *(_ok(f"{kind.lower()}-{mode.lower()}", f"a {kind} of mode {mode}", _beside(f"x.{kind.lower()}", _of_mode(mode, kind)), is_quick=kind == "JPEG") for kind, mode in (("JPEG", "CMYK"), ("TIFF", "CMYK"), ("TIFF", "LAB"), ("TIFF", "I;16"), ("WEBP", "RGBA"), ("BMP", "P"), ("PPM", "L"), ("GIF", "P"))),
    *(_ok(f"animated-{kind.lower()}", f"an animated {kind}: its first frame counts", _beside(f"x.{kind.lower()}", _animated(kind))) for kind in ("GIF", "WEBP", "PNG", "TIFF")),
    _ok("ending", "a JPEG that is called .png", _beside("x.png", seeds.image_file("JPEG")), is_quick=True),
    _ok("upper-case", "an ending in capital letters", _beside("X.JPG", seeds.image_file("JPEG"))),
    _ok("profile-noise", "a colour profile that is noise", _beside("x.png", _profile(bytes(range(256)) * 4)), is_quick=True),
    _ok("profile-empty", "a colour profile of nothing", _beside("x.png", _profile(b""))),
    _ok("metadata-nan", "texts that say NaN, markup and a terminal's codes", _beside("x.png", seeds.png_text(dpi="NaN", Comment="<script>\x1b[31m", parameters="\u202e"))),
    _ok("polyglot-after", "a program behind its last byte", _beside("x.png", seeds.image_file() + b"\nimport os; os.system('touch canary')\n")),
    _ok("phys-zero", "no dots an inch", _beside("x.png", png(8, 8, _rows(8, 8), chunk(b"pHYs", bytes(9))))),
]  # fmt: skip
_LEFT = [
    *(_skipped(f"cut-{kind.lower()}", f"a {kind} that ends in its middle", f"x.{kind.lower()}", _cut(kind, 0.6), is_quick=kind in ("PNG", "JPEG")) for kind in ("PNG", "JPEG", "WEBP", "TIFF", "BMP", "PPM", "AVIF")),
    *(_skipped(f"head-{kind.lower()}", f"the first bytes of a {kind} and no more", f"x.{kind.lower()}", _cut(kind, 0)[:12] or seeds.image_file(kind)[:12]) for kind in ("PNG", "JPEG", "GIF", "WEBP", "TIFF", "BMP", "PPM")),
    _skipped("empty", "no byte", "x.png", b"", "empty file", is_quick=True),
    _skipped("zero-bytes", "4,096 zero bytes", "x.jpg", bytes(4096), "not an image", is_quick=True),
    _skipped("web-page", "a web page", "x.jpg", "<!doctype html><title>404</title>", "not an image"),
    _skipped("lfs", "a pointer of Git LFS", "x.png", "version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "not an image"),
    _skipped("text", "a text", "x.webp", "a caption", "not an image"),
    _skipped("svg", "a drawing that can run scripts", "x.png", "<svg xmlns='http://www.w3.org/2000/svg'><script>1</script></svg>", "not an image"),
    _skipped("bomb-png", "a header of 60,000 by 60,000 pixels over 70 bytes", "x.png", png(60_000, 60_000, b""), "more than data.max_pixels", is_quick=True),
    _skipped("bomb-body", "100 million pixels in 300 KB", "x.png", lambda: png(12_000, 12_000, b"\0" * 10_000_000), "more than data.max_pixels"),
    _skipped("bomb-gif", "a GIF of 65,535 by 65,535", "x.gif", b"GIF89a\xff\xff\xff\xff\x80\0\0" + bytes(6) + b"\x2c" + bytes(4) + b"\xff\xff\xff\xff\0\x08\x01\0\0\x3b", "more than data.max_pixels"),
    _skipped("bomb-bmp", "a BMP of 2,000,000,000 by 1", "x.bmp", b"BM" + struct.pack("<IHHIIiiHHIIiiII", 70, 0, 0, 54, 40, 2_000_000_000, 1, 1, 24, 0, 0, 0, 0, 0, 0), "more than data.max_pixels"),
    _skipped("bmp-negative", "a BMP of a negative width", "x.bmp", b"BM" + struct.pack("<IHHIIiiHHIIiiII", 70, 0, 0, 54, 40, -5, 5, 1, 24, 0, 0, 0, 0, 0, 0) + bytes(100)),
    _skipped("text-bomb", "a compressed text of 60 MB that nobody asked for", "x.png", lambda: png(8, 8, _rows(8, 8), chunk(b"zTXt", b"a\0\0" + zlib.compress(bytes(60 << 20)))), "too large"),
    _skipped("no-width", "a header of 0 by 5 pixels", "x.png", png(0, 5, b""), is_quick=True),
    _skipped("checksum", "a wrong checksum in the pixels", "x.png", seeds.image_file().replace(b"IEND", b"IENE"), is_quick=True),
    _skipped("trailing-chunk", "a chunk that is 4 GB long", "x.png", png(8, 8, _rows(8, 8))[:-12] + b"\xff\xff\xff\xff" + b"IEND", "truncated"),
    _skipped("short-body", "a header of 64 by 64 pixels, and pixels for 8 rows", "x.png", png(64, 64, _rows(64, 8)), is_quick=True),
    _skipped("depth", "a depth of 7 bits", "x.png", png(8, 8, _rows(8, 8), depth=7)),
    _skipped("float", "float pixels", "x.tiff", _of_mode("F", "TIFF"), is_quick=True),
    _skipped("tiff-loop", "a TIFF whose next page is itself, without pixels", "x.tiff", _tiff([(256, 4, 1, 8), (257, 4, 1, 8)], 8)),
    _skipped("tiff-counts", "a TIFF with a tag of 4 billion values", "x.tiff", _tiff([(256, 4, 1, 8), (257, 4, 1, 8), (258, 3, 0xFFFFFFFF, 8), (273, 4, 0xFFFFFFFF, 8)])),
    _skipped("jpeg-2000", "a JPEG 2000 under .jpg, which is not read here", "x.jpg", b"\0\0\0\x0cjP  \r\n\x87\n" + bytes(50), "not an image"),
    _skipped("jpeg-segments", "a JPEG of headers without end", "x.jpg", b"\xff\xd8" + b"\xff\xe1\xff\xff" * 2000),
    _skipped("ppm-number", "a width of 5,000 digits", "x.ppm", b"P6 " + b"9" * 5000 + b" 1 255\n\0"),
    _skipped("ppm-text", "numbers that are none", "x.ppm", b"P3 4 4 255\n a b c d"),
    _skipped("avif-head", "an AVIF of a header alone", "x.avif", b"\0\0\0\x1cftypavif" + bytes(60)),
    _skipped("webp-lies", "a WebP that says it is 4 GB long", "x.webp", b"RIFF\xff\xff\xff\xffWEBPVP8 \xff\xff\xff\xff" + bytes(40)),
]  # fmt: skip


def _sparse(folder: Path) -> None:
    with open(folder / "x.png", "wb") as file_:
        file_.truncate(64 << 30)


def _special(folder: Path, *, kind: str) -> None:
    place = folder / "x.png"
    match kind:
        case "pipe":
            os.mkfifo(place)
        case "folder":
            place.mkdir()
        case "loop":
            place.symlink_to("x.png")
        case "out":
            place.symlink_to("/etc/hostname")
        case "endless":
            place.symlink_to("/dev/zero")


_OTHER = [
    Entry(
        id=f"image-{kind}", reader="image", fault=fault, row="F10", expected="S", names="x.png", is_quick=True,
        make=all_of(partial(_special, kind=kind), _SOUND),
    )
    for kind, fault in (
        ("pipe", "a pipe that nobody writes to"), ("folder", "a folder called .png"), ("loop", "a link to itself"),
        ("out", "a link out of the data set"), ("endless", "a link to a device without end"),
    )
] + [
    Entry(
        id="image-sparse", reader="image", fault="64 GB that take no room on the disk", row="F7", expected="S",
        make=all_of(_sparse, _SOUND), names="x.png", says="more than an image may have", is_quick=True,
    )
]  # fmt: skip

# --- clips ------------------------------------------------------------------------------------------------------------


def clip(count: int = 6, codec: str = "mpeg4", kind: str = "mp4") -> bytes:
    """A clip of small frames."""
    import av  # an extra, and slow to import

    file_ = io.BytesIO()
    with av.open(file_, "w", format=kind) as container:
        stream = container.add_stream(codec, rate=10)
        stream.width, stream.height, stream.pix_fmt = 32, 32, "yuv420p"
        stream.codec_context.thread_count = 1
        for number in range(count):
            shade = np.full((32, 32, 3), 20 * number, np.uint8)
            container.mux(stream.encode(av.VideoFrame.from_ndarray(shade)))
        container.mux(stream.encode())
    return file_.getvalue()


def _clip(id_: str, fault: str, content: bytes | partial[bytes], *, says: str = "", **more: object) -> Entry:
    def make(folder: Path) -> None:
        body = content() if isinstance(content, partial) else content
        all_of(file("x.mp4", body), file("sound.mp4", clip()))(folder)

    return Entry(
        id=f"clip-{id_}", reader="clip", fault=fault, row="F7", make=make, expected="S", says=says, names="x.mp4",
        **more,  # type: ignore[arg-type]
    )  # fmt: skip


_CLIPS = [
    _clip("empty", "no byte", b"", says="empty file", is_quick=True),
    _clip("zero-bytes", "zero bytes", bytes(2000), says="zero bytes"),
    _clip("cut", "it ends in its middle", partial(lambda: clip()[:-700])),
    _clip("no-index", "its index is gone", partial(lambda: clip().replace(b"moov", b"mook").replace(b"mvhd", b"mvhx"))),
    _clip("box-lies", "a box that says it is 2^63 bytes long", partial(lambda: b"\0\0\0\x01ftyp" + b"\x7f" + b"\xff" * 7 + clip()[8:])),
    _clip("image", "an image under .mp4", seeds.image_file(), says="an image, not a clip", is_quick=True),
    _clip("playlist", "a playlist that names a file of this machine", b"#EXTM3U\nfile:///etc/passwd\n", says="a playlist", is_quick=True),
    _clip("concat", "a script that names another file", b"ffconcat version 1.0\nfile '/etc/passwd'\n", says="a playlist"),
    _clip("sound", "sound alone", b"ID3" + bytes(100), says="sound, not a clip"),
    _clip("noise", "a matroska head and noise", b"\x1aE\xdf\xa3" + bytes(range(256)) * 4),
    _clip("avi-noise", "an AVI head and noise", b"RIFF\xff\xff\xff\xffAVI " + bytes(range(256)) * 4),
    _clip("ogg-noise", "an Ogg head and noise", b"OggS" + bytes(range(256)) * 4),
    _clip("flv-noise", "an FLV head and noise", b"FLV\x01" + bytes(range(256)) * 4),
    _clip("subtitle", "subtitles", b"WEBVTT\n\n00:00.000 --> 00:01.000\n<b>x</b>\n"),
    Entry(id="clip-ending", reader="clip", fault="an mkv that is called .mp4", row="F7", expected="ok",
          make=lambda folder: file("x.mp4", clip(kind="matroska"))(folder)),
]  # fmt: skip

# --- names ------------------------------------------------------------------------------------------------------------

_NAMES = {
    "space": "a red  fox .png", "newline": "a\nb.png", "quotes": "it's \"red\" `x` $(touch canary).png",
    "markup": "<img src=x onerror=alert(1)>.png".replace("/", ""), "terminal": "\x1b[31mred\x1b[0m\x07.png",
    "nfc": "caf\u00e9.png", "nfd": "cafe\u0301.png", "254-bytes": "x" * 250 + ".png", "right-to-left": "\u202egnp.png",
    "leading-dash": "-rf.png", "percent": "%2e%2e%2fetc.png", "comma": "a,b;c.png", "at": "a@12+34.png",
    "emoji": "\U0001f98a\u200d\U0001f98a.png", "backslash": "..\\..\\a.png", "surrogate": "a\udcff\udcfe.png",
    "template": "{name}{0}%s.png", "nul-like": "a%00.png", "device": "con.png", "hash": "#1.png",
}  # fmt: skip
_NAMED = [
    Entry(
        id=f"name-{id_}", reader="name", fault=f"an image called {name[:40]!a}", row="F9", expected="ok",
        make=_beside(name, seeds.image_file()),
        is_quick=id_ in ("newline", "markup", "terminal", "254-bytes", "right-to-left", "surrogate", "at"),
    )
    for id_, name in _NAMES.items()
] + [
    Entry(
        id=f"name-bad-{id_}", reader="name", fault=f"a file called {name[:40]!a} that is no image", row="F9",
        make=_beside(name, b"no image"), expected="S", names=name,
        is_quick=id_ in ("newline", "terminal", "surrogate"),
    )
    for id_, name in _NAMES.items() if id_ in ("newline", "terminal", "markup", "surrogate", "right-to-left", "254-bytes")
]  # fmt: skip

ENTRIES = _USED + _LEFT + _OTHER + _CLIPS + _NAMED
