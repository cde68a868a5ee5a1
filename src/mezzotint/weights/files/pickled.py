"""Pickled model files (.ckpt, .pt, .bin), read in a sandboxed child process: `unpickling`.

Unpickling can run any code that the file contains. A child process with few privileges reads the file and writes its
tensors as safetensors; this process never opens the pickle.
"""

from __future__ import annotations

import fcntl
import json
import re
import signal
import subprocess
import sys
from pathlib import Path

from mezzotint import durable, outside
from mezzotint.errors import StorageError, WeightsError
from mezzotint.settings import weights_formats
from mezzotint.weights.files import fingerprint
from mezzotint.weights.files.tensor_files import PICKLES, read_header, replacing

SUFFIXES = weights_formats.PICKLED

_CHILD = Path(__file__).with_name("unpickling.py")

_SECONDS = 900
"""CPU time that reading a file may take; wall time may be twice that."""


def _memory_for(size: int) -> int:
    """Bytes that reading a file of `size` bytes may allocate: room for two copies and more."""
    return 3 * size + (1 << 30)


def is_pickled(path: Path) -> bool:
    """Whether a file is a pickle or a torch archive by its first bytes. A safetensors file with the suffix .ckpt is
    not."""
    try:
        with outside.open_plain(path) as file:
            return file.read(8).startswith(PICKLES)
    except OSError as error:
        raise WeightsError(f"{path}: cannot be read ({error.strerror}); check the path", code="E1401") from error


def convert(source: Path, target: Path) -> None:
    """Writes the tensors of a pickled file as the safetensors file `target`, atomically.

    Raises WeightsError E1411 when the file is not plain weights or needs anything that weights do not; none of its code
    is run. StorageError E1701 when the disk refuses.
    """
    with replacing(target) as aside, durable.temporary_folder(target) as scratch:
        aside.touch()  # with the default permissions of the user's files
        converted = scratch / "weights.safetensors"
        _run_child(source, converted)
        read_header(converted)
        converted.chmod(aside.stat().st_mode)
        converted.rename(aside)


def as_safetensors(source: Path, store: Path) -> Path:
    """A safetensors file with the tensors of a pickled one: converted once and kept in `store` under the hash of its
    content, with its own hash next to it; converted again if that does not match.

    Safe to call from several processes; one of them converts. Raises as `convert`.
    """
    try:
        store.mkdir(parents=True, exist_ok=True)
        target = store / f"{fingerprint.of_file(source)}.safetensors"
        with target.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            durable.sweep(store)
            if not _is_whole(target):
                convert(source, target)
                durable.write_file(_hash_file(target), fingerprint.of_file(target) + "\n")
    except OSError as error:
        raise StorageError(
            f"{store}: {source.name} cannot be converted there ({error.strerror}); make room, or convert it to another "
            f"folder: mezzotint convert {source} {source.with_suffix('.safetensors').name}",
            code="E1701",
        ) from error
    return target


def readable(path: Path, store: Path | None = None) -> Path:
    """The file to read: `path`, or for a pickled file a safetensors copy in `store`. Raises as `convert`."""
    return as_safetensors(path, store or default_store()) if path.suffix in SUFFIXES and is_pickled(path) else path


def default_store() -> Path:
    """The folder for converted copies of pickled files that are loaded directly: ~/.cache/mezzotint/converted."""
    return Path("~/.cache/mezzotint/converted").expanduser()


def _hash_file(path: Path) -> Path:
    return path.with_suffix(".sha256")


def _is_whole(path: Path) -> bool:
    try:
        return outside.read_text(_hash_file(path)).strip() == fingerprint.of_file(path)
    except (OSError, UnicodeDecodeError, WeightsError):
        return False


def _run_child(source: Path, converted: Path) -> None:
    paths = [str(source.absolute()), str(converted.absolute())]
    bounds, wall = [str(_memory_for(source.stat().st_size)), str(_SECONDS)], 2 * _SECONDS + 60
    try:
        done = subprocess.run(
            [sys.executable, "-I", str(_CHILD), *paths, *bounds],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=wall,
            cwd=converted.parent,
            check=False,
        )
    except subprocess.TimeoutExpired:
        _refuse(source, f"reading it took more than {wall} seconds")
    if done.returncode != 0:
        if done.returncode == 3 and re.search(r"No space left|quota exceeded", done.stdout):
            raise StorageError(
                f"{converted.parent.parent}: the disk is full; make room for {source.name}", code="E1701"
            )
        _refuse(source, _reason_in(done.stdout) or _exit_reason(done.returncode))
    if not converted.is_file():
        _refuse(source, "reading it wrote no tensors")


def _reason_in(output: str) -> str:
    for line in reversed(output.splitlines()):
        try:
            return str(json.loads(line)["reason"])
        except (ValueError, KeyError, TypeError):
            continue
    return ""


def _exit_reason(status: int) -> str:
    reasons: dict[int, str] = {
        signal.SIGXCPU: f"reading it took more than {_SECONDS} seconds of CPU time",
        signal.SIGKILL: "the process that read it was killed; it needs too much time or memory",
        signal.SIGXFSZ: "its tensors would take far more bytes than the file has",
    }
    other = f"the process that read it exited with status {status}; it needs too much memory, or is damaged"
    return reasons.get(-status, other)


def _refuse(source: Path, reason: str) -> None:
    raise WeightsError(
        f"{source}: refused: {reason}. None of its code was run; use the model's safetensors file, or one from a "
        "source you trust",
        code="E1411",
    )
