"""Pickled model files (.ckpt, .pt, .bin), by way of a process that can do no harm: `_unpickling`.

Opening a pickle in the usual way can run any program it contains. Here a child process with few powers reads the file
and writes its tensors as safetensors; this process never touches the pickle.
"""

from __future__ import annotations

import fcntl
import json
import re
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from mezzotint.errors import StorageError, WeightsError
from mezzotint.weights.files import fingerprint
from mezzotint.weights.files.tensor_files import read_header, replacing

SUFFIXES = (".ckpt", ".pt", ".pth", ".bin")
"""Endings under which pickled weights are found."""

_CHILD = Path(__file__).with_name("_unpickling.py")
_MAGIC = (b"PK\x03\x04", b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")


@dataclass(frozen=True, slots=True)
class Limits:
    """What reading a file may cost. memory: bytes beyond those the process holds when it begins, None makes them of
    the file's size. seconds: of computing; wall time may be twice that."""

    memory: int | None = None
    seconds: int = 900

    def memory_for(self, size: int) -> int:
        """Bytes for a file of `size` bytes: it is held twice, and some."""
        return self.memory if self.memory is not None else 3 * size + (1 << 30)


def is_pickled(path: Path) -> bool:
    """Whether a file's first bytes are those of a pickle or of torch's archives. A safetensors file under the ending
    .ckpt is none."""
    try:
        with path.open("rb") as file:
            return file.read(8).startswith(_MAGIC)
    except OSError as error:
        raise WeightsError(f"{path}: cannot be read ({error.strerror}); check the path", code="E1401") from error


def convert(source: Path, target: Path, limits: Limits | None = None) -> None:
    """Writes the tensors of a pickled file as the safetensors file `target`, which appears whole or not at all.

    Raises WeightsError E1411 when the file is no plain weights, or asks for anything that weights do not need; nothing
    of it was run. StorageError E1701 when the disk refuses.
    """
    start = f".{target.name}."
    with replacing(target) as aside, TemporaryDirectory(".partial", start, target.parent) as scratch:
        aside.touch()  # with the rights that this user's files have
        converted = Path(scratch, "weights.safetensors")
        _run_child(source, converted, limits or Limits())
        read_header(converted)
        converted.chmod(aside.stat().st_mode)
        converted.rename(aside)


def as_safetensors(source: Path, store: Path) -> Path:
    """A safetensors file with the tensors of a pickled one: made once, kept in `store` under the content's name.

    Several processes may ask at once; one of them makes it. Raises as `convert`.
    """
    try:
        store.mkdir(parents=True, exist_ok=True)
        target = store / f"{fingerprint.of_file(source)}.safetensors"
        with target.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not _is_whole(target):
                convert(source, target)
    except OSError as error:
        raise StorageError(
            f"{store}: {source.name} cannot be converted there ({error.strerror}); make room, or convert it to a place "
            f"of your own: mezzotint convert {source} {source.with_suffix('.safetensors').name}",
            code="E1701",
        ) from error
    return target


def default_store() -> Path:
    """Where `as_safetensors` keeps files that are loaded directly: ~/.cache/mezzotint/converted."""
    return Path("~/.cache/mezzotint/converted").expanduser()


def _is_whole(path: Path) -> bool:
    try:
        return bool(read_header(path))
    except WeightsError:
        return False


def _run_child(source: Path, converted: Path, limits: Limits) -> None:
    size = source.stat().st_size
    words = [str(source.absolute()), str(converted.absolute()), str(limits.memory_for(size)), str(limits.seconds)]
    try:
        done = subprocess.run(
            [sys.executable, "-I", str(_CHILD), *words],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=2 * limits.seconds + 60,
            cwd=converted.parent,
            check=False,
        )
    except subprocess.TimeoutExpired:
        _refuse(source, f"reading it took more than {2 * limits.seconds + 60} seconds")
    if done.returncode != 0:
        if done.returncode == 3 and re.search(r"No space left|quota exceeded", done.stdout):
            raise StorageError(
                f"{converted.parent.parent}: the disk is full; make room for {source.name}", code="E1701"
            )
        _refuse(source, _reason_in(done.stdout) or _death(done.returncode, limits))
    if not converted.is_file():
        _refuse(source, "reading it gave nothing")


def _reason_in(output: str) -> str:
    for line in reversed(output.splitlines()):
        try:
            return str(json.loads(line)["reason"])
        except (ValueError, KeyError, TypeError):
            continue
    return ""


def _death(status: int, limits: Limits) -> str:
    match -status:
        case signal.SIGXCPU:
            return f"reading it took more than {limits.seconds} seconds of computing"
        case signal.SIGKILL:
            return "the process that read it was killed; it needs too much time or memory"
        case signal.SIGXFSZ:
            return "its tensors would take far more bytes than the file has"
        case _:
            return f"the process that read it ended with status {status}; it needs too much memory, or is damaged"


def _refuse(source: Path, reason: str) -> None:
    raise WeightsError(
        f"{source}: is not read; {reason}. Nothing of it was run; take the model's safetensors file, or one from a "
        "place you trust",
        code="E1411",
    )
