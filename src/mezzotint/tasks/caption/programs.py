"""Captions from another program, which is run once for each image and prints its caption."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from typing import IO

from mezzotint.data.catalogue.catalogue import Catalogue
from mezzotint.data.files.listing import is_remote
from mezzotint.data.formats.shared.captions import MAX_BYTES
from mezzotint.errors import escape_line
from mezzotint.tasks.caption.errors import CaptionError
from mezzotint.tasks.reading.command_line import CommandLine

IMAGE = "{image}"
"""What is replaced by the absolute path of an image."""


@dataclass(frozen=True, slots=True)
class Program:
    """A program and its arguments, of which at least one contains `IMAGE`. seconds: after which it is killed."""

    arguments: tuple[str, ...]
    seconds: float

    @classmethod
    def of(cls, text: str, line: CommandLine, *, seconds: float) -> Program:
        """A command as typed, with quotes but without a shell. Raises RecipeError E1012."""
        try:
            arguments = tuple(shlex.split(text))
        except ValueError as error:
            raise line.usage_error(f"--with={text!r} cannot be split into arguments: {error}") from None
        if not any(IMAGE in word for word in arguments[1:]):
            raise line.usage_error(f"--with={text!r} needs {IMAGE} after the command, where the path of an image goes")
        if shutil.which(arguments[0]) is None:
            raise line.usage_error(f"--with: there is no program {arguments[0]!r} to run")
        return cls(arguments, seconds)

    def caption(self, catalogue: Catalogue, row: int) -> str:
        """What the program prints for the image file of a row. Raises CaptionError if it fails or takes too long."""
        path = os.fspath(catalogue.path(row))
        if is_remote(path) or not os.path.isfile(path):
            raise CaptionError("its image is not a file")
        words = [word.replace(IMAGE, path) for word in self.arguments]
        with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
            try:
                status = self._run(words, output, errors)
            except OSError as error:
                raise CaptionError(f"{words[0]} cannot be run: {error.strerror}") from error
            if status:
                lines = _read(errors).decode("utf-8", "replace").strip().splitlines()
                raise CaptionError(f"exit status {status}" + (f": {escape_line(lines[-1][:200])}" if lines else ""))
            try:
                return _read(output).decode("utf-8")
            except UnicodeDecodeError:
                raise CaptionError("what it prints is not UTF-8") from None

    def _run(self, words: list[str], output: IO[bytes], errors: IO[bytes]) -> int:
        process = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=output, stderr=errors, start_new_session=True
        )  # fmt: skip
        try:
            return process.wait(self.seconds)
        except subprocess.TimeoutExpired:
            raise CaptionError(f"it took longer than {self.seconds:g} seconds (--timeout)") from None
        finally:
            with suppress(ProcessLookupError):  # also what it has started
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _read(file: IO[bytes]) -> bytes:
    """As much of a program's output as a caption can have, and one byte."""
    file.seek(0)
    return file.read(MAX_BYTES + 1)
