# ruff: noqa: E501 (words)
"""Mutations of sound files, drawn from a seed: what chance and a hostile hand make of them."""

from __future__ import annotations

import random
import re
import struct
from collections.abc import Sequence

EXTREMES = (0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFF, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, 2**63, 2**64 - 1)
WORDS = (
    b"null", b"true", b"-1", b"0", b"1e999", b"NaN", b"9" * 500, b"[" * 300, b"{" * 300, b'{"a":' * 300, b'"', b"\\u0000",
    b"../../", b"/etc/passwd", b"\0", b"\xff\xfe", b"\xed\xa0\x80", b"\x1b[31m", b"\xe2\x80\xae", b"%s%n{0}", b"__proto__",
    b"!!python/object/apply:os.system", b"&a [*a, *a]", b"<<: *a", b"\x80\x04\x95", b"18446744073709551616", b"1" + b"0" * 400,
)  # fmt: skip


def mutated(data: bytes, rng: random.Random, words: Sequence[bytes] = ()) -> bytes:
    """A file after one to four mutations. words: of the reader's own, besides those of all."""
    body = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 4))):
        rng.choice(_KINDS)(body, rng, (*words, *WORDS))
    return bytes(body)


def _flip(body: bytearray, rng: random.Random, _: Sequence[bytes]) -> None:
    if body:
        body[rng.randrange(len(body))] ^= 1 << rng.randrange(8)


def _cut(body: bytearray, rng: random.Random, _: Sequence[bytes]) -> None:
    del body[rng.randrange(len(body) + 1) :]


def _without(body: bytearray, rng: random.Random, _: Sequence[bytes]) -> None:
    start = rng.randrange(len(body) + 1)
    del body[start : start + rng.choice((1, 4, 64, 512))]


def _again(body: bytearray, rng: random.Random, _: Sequence[bytes]) -> None:
    start, size = rng.randrange(len(body) + 1), rng.choice((1, 8, 64, 512))
    body[start:start] = body[start : start + size] * rng.choice((1, 2, 50))


def _swapped(body: bytearray, rng: random.Random, _: Sequence[bytes]) -> None:
    size = rng.choice((4, 16, 64))
    first, second = (rng.randrange(max(1, len(body) - size)) for _ in range(2))
    body[first : first + size], body[second : second + size] = body[second : second + size], body[first : first + size]


def _number(body: bytearray, rng: random.Random, _: Sequence[bytes]) -> None:
    """A field of a length or an offset becomes an extreme."""
    kind = rng.choice(("<B", "<H", "<I", "<Q", ">H", ">I", ">Q"))
    size = struct.calcsize(kind)
    if len(body) > size:
        at = rng.choice((rng.randrange(min(64, len(body) - size)), rng.randrange(len(body) - size)))
        body[at : at + size] = struct.pack(kind, rng.choice(EXTREMES) & ((1 << 8 * size) - 1))


def _digits(body: bytearray, rng: random.Random, _: Sequence[bytes]) -> None:
    """A number that is written in digits becomes another."""
    places = list(re.finditer(rb"\d+", bytes(body)))
    if places:
        place = rng.choice(places)
        value = rng.choice((b"-1", b"0", b"1e999", b"%d" % rng.choice(EXTREMES), b"9" * 500, b"null", b'"x"', b"[]"))
        body[place.start() : place.end()] = value


def _word(body: bytearray, rng: random.Random, words: Sequence[bytes]) -> None:
    at = rng.randrange(len(body) + 1)
    body[at : at + rng.choice((0, 0, 8))] = rng.choice(words)


def _zeros(body: bytearray, rng: random.Random, _: Sequence[bytes]) -> None:
    at, size = rng.randrange(len(body) + 1), rng.choice((1, 8, 512))
    body[at : at + size] = bytes(len(body[at : at + size]))


_KINDS = (_flip, _flip, _cut, _without, _again, _swapped, _number, _number, _digits, _digits, _word, _word, _zeros)
