"""A timeout for decoding one file: a damaged file, or a disk that does not respond, cannot block a run forever."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

from mezzotint.errors import DatasetError

T = TypeVar("T")

GRACE = 1.0
"""Additional seconds, for the case that this process itself was suspended."""


class Sign:
    """A progress signal, which long work calls after each step, for example each frame of a clip."""

    def __init__(self) -> None:
        self.began = self.at = time.monotonic()

    def __call__(self) -> None:
        self.at = time.monotonic()


def run_with_timeout(seconds: float | None, name: str, work: Callable[[], T], sign: Sign | None = None) -> T:
    """Runs work in a thread and returns its result or raises its error. After a timeout the thread is abandoned.
    seconds: timeout, None to wait forever. name: of the file, for the message. sign: called by the work to restart
    the timeout. Raises DatasetError E1233."""
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
        thread.join(GRACE)
    if errors:
        raise errors[0]
    if results:
        return results[0]
    raise DatasetError(
        f"{name}: not decoded within {seconds:g} s; check the file and its disk, or raise data.decode_timeout",
        code="E1233",
    )
