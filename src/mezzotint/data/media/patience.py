"""A limit on how long the decoding of one file may take: a damaged file, or a disk that does not answer, holds no run
for ever."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

from mezzotint.errors import DatasetError

T = TypeVar("T")

_GRACE = 1.0
"""Seconds more that a process has that was itself stopped meanwhile."""


class Sign:
    """What long work calls whenever it has come a little further, as a clip does frame by frame."""

    def __init__(self) -> None:
        self.began = self.at = time.monotonic()

    def __call__(self) -> None:
        self.at = time.monotonic()


def within(seconds: float | None, what: str, work: Callable[[], T], sign: Sign | None = None) -> T:
    """What some work gives, or raises. It is done in a thread of its own, which is left behind where it does not come
    to its end: nobody waits for it. seconds: None waits for ever. what: names the file, for the sentence. sign: what
    the work calls; the seconds begin anew then. Raises DatasetError E1233."""
    if seconds is None:
        return work()
    results: list[T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(work())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run, name="decode", daemon=True)
    sign = sign or Sign()
    sign()
    thread.start()
    while thread.is_alive() and (rest := sign.at + seconds - time.monotonic()) > 0:
        thread.join(rest)
    if thread.is_alive():
        thread.join(_GRACE)
    if errors:
        raise errors[0]
    if results:
        return results[0]
    raise DatasetError(
        f"{what}: not decoded within {seconds:g} s; look at the file and its disk, or raise data.decode_timeout",
        code="E1233",
    )
