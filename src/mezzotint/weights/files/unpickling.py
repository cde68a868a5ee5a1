"""Run in a separate process by `pickled`: reads a pickled model file and writes its tensors as safetensors.

    python -I unpickling.py SOURCE TARGET MEMORY SECONDS

A pickle is a program. It is read by torch's restricted unpickler, which rebuilds only tensors and plain containers; a
few classes that training programs leave in their checkpoints become empty shells. Before the file is opened this
process limits its memory, CPU time, file size and core dumps; starting a program, opening a connection or writing
another file ends it. It imports nothing of Mezzotint and prints one line of JSON.
"""

from __future__ import annotations

import json
import os
import resource
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

_SHELLS = (
    "pytorch_lightning.callbacks.model_checkpoint.ModelCheckpoint",
    "pytorch_lightning.callbacks.early_stopping.EarlyStopping", "pytorch_lightning.utilities.parsing.AttributeDict",
    "pytorch_lightning.trainer.states.TrainerFn", "pytorch_lightning.trainer.states.TrainerStatus",
    "pytorch_lightning.trainer.states.TrainerState", "lightning.pytorch.callbacks.model_checkpoint.ModelCheckpoint",
    "lightning.pytorch.utilities.parsing.AttributeDict", "lightning_fabric.utilities.data.AttributeDict",
    "numpy.core.multiarray.scalar", "numpy._core.multiarray.scalar", "numpy.dtype",
    "numpy.core.multiarray._reconstruct", "numpy._core.multiarray._reconstruct", "numpy.ndarray",
    "omegaconf.dictconfig.DictConfig", "omegaconf.listconfig.ListConfig", "omegaconf.base.ContainerMetadata",
    "omegaconf.base.Metadata", "omegaconf.nodes.AnyNode", "collections.defaultdict", "typing.Any", "builtins.dict",
    "builtins.list", "builtins.int", "builtins.float", "builtins.str", "builtins.bool", "builtins.slice",
    "argparse.Namespace", "pathlib.PosixPath", "pathlib.WindowsPath", "pathlib.PurePosixPath",
)  # fmt: skip
"""Classes that harmless checkpoints refer to besides tensors. None is imported: each is replaced by an empty shell."""

_FORBIDDEN = (
    "socket.", "subprocess.", "os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.fork", "os.forkpty", "os.kill",
    "os.remove", "os.rename", "os.rmdir", "os.mkdir", "os.link", "os.symlink", "os.chmod", "os.chown", "os.truncate",
    "os.putenv", "os.unsetenv", "pty.", "shutil.", "ctypes.", "webbrowser.", "urllib.", "ftplib.", "http.", "smtplib.",
)  # fmt: skip
_DTYPES = {
    torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16, torch.int8,
    torch.uint8, torch.bool,
}  # fmt: skip
_TABLES = ("state_dict", "model", "module", "string_to_param")
_MOST_TENSORS = 200_000


class Refused(Exception):
    """The file is refused. The message is the reason."""


class Shell:
    """Replaces an object other than weights. Accepts any arguments and keeps nothing."""

    def __init__(self, *_: object) -> None:
        pass

    def __new__(cls, *_: object) -> Shell:
        return super().__new__(cls)

    def __setstate__(self, _: object) -> None:
        pass


def main(arguments: list[str]) -> int:
    """Converts one file. Exit status 0 after writing, 3 with the reason of a refusal."""
    source, target, memory, seconds = arguments[0], arguments[1], int(arguments[2]), int(arguments[3])
    try:
        shells: list[Any] = [(type("Shell", (Shell,), {}), name) for name in _SHELLS]
        drop_privileges(target, memory, seconds, os.path.getsize(source))
        with torch.serialization.safe_globals(shells):
            loaded = torch.load(source, map_location="cpu", weights_only=True)
        tensors = _weights(loaded)
        _bound(tensors, os.path.getsize(source))
        save_file({name: _plain(t) for name, t in tensors.items()}, target, metadata={"format": "pt"})
        print(json.dumps({"tensors": len(tensors)}))
        return 0
    except Refused as refusal:
        print(json.dumps({"reason": str(refusal)}))
    except MemoryError:
        print(json.dumps({"reason": "it needs more memory than its size explains"}))
    except Exception as error:  # any error that a damaged or hostile file causes is a reason to refuse it
        print(json.dumps({"reason": _reason(error)}))
    return 3


def drop_privileges(target: str, memory: int, seconds: int, size: int) -> None:
    """Limits what this process may do: memory and size in bytes, CPU seconds. target: the only file it may write."""
    torch.set_num_threads(1)
    mapped = _virtual_bytes()
    for kind, limit in (
        (resource.RLIMIT_AS, mapped + memory),
        (resource.RLIMIT_CPU, seconds),
        (resource.RLIMIT_FSIZE, 2 * size + (1 << 26)),
        (resource.RLIMIT_CORE, 0),
    ):
        hard = resource.getrlimit(kind)[1]
        bound = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
        resource.setrlimit(kind, (bound, bound))
    allowed = os.path.realpath(target)

    def watch(event: str, details: tuple[Any, ...]) -> None:
        writes = event == "open" and _is_writing(details) and os.path.realpath(str(details[0])) != allowed
        if writes or event.startswith(_FORBIDDEN):
            os.write(1, json.dumps({"reason": f"it tried to do something that weights never need ({event})"}).encode())
            os._exit(3)

    sys.addaudithook(watch)


def _virtual_bytes() -> int:
    """Bytes that this process has mapped already, mostly libraries."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[0]) * resource.getpagesize()
    except (OSError, ValueError):
        return 16 << 30


def _is_writing(details: tuple[Any, ...]) -> bool:
    mode, flags = details[1], details[2]
    written = isinstance(mode, str) and any(letter in mode for letter in "wax+")
    return written or bool(isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))


def _weights(loaded: object) -> dict[str, Tensor]:
    """The tensors of a checkpoint by name, without optimizer states and metadata."""
    if not isinstance(loaded, Mapping):
        raise Refused(f"it contains {type(loaded).__name__}, not a dict of tensors")
    inner = next((loaded[key] for key in _TABLES if _is_table(loaded.get(key))), loaded)
    tensors = {name: tensor for name, tensor in _named(inner) if isinstance(tensor, Tensor)}
    if not tensors:
        raise Refused("it contains no named tensors")
    if len(tensors) > _MOST_TENSORS:
        raise Refused(f"it contains {len(tensors)} tensors, more than any model")
    return tensors


def _is_table(value: object) -> bool:
    return isinstance(value, Mapping) and any(isinstance(v, Tensor) for v in value.values())


def _named(table: object) -> Iterator[tuple[str, object]]:
    assert isinstance(table, Mapping)
    for name, value in table.items():
        if isinstance(name, str):
            yield name, value


def _bound(tensors: Mapping[str, Tensor], size: int) -> None:
    """Refuses tensors that would be much larger than the file: a view may expand few stored numbers to many."""
    total = 0
    for name, tensor in tensors.items():
        if tensor.layout != torch.strided or tensor.dtype not in _DTYPES or tensor.is_quantized:
            raise Refused(f"{name} has a type that weights never have ({tensor.dtype}, {tensor.layout})")
        total += tensor.numel() * tensor.element_size()
    if total > 2 * size + (1 << 20):
        raise Refused(f"its tensors would take {total} bytes, the file has {size}")


def _plain(tensor: Tensor) -> Tensor:
    return tensor.detach().clone(memory_format=torch.contiguous_format)


def _reason(error: Exception) -> str:
    text = str(error)
    for mark in ("Unsupported global: GLOBAL ", "unsupported GLOBAL "):
        if mark in text:
            return (
                f"it imports {text.partition(mark)[2].split()[0]}, which weights never need: such a file can run code"
            )
    if "TorchScript" in text:
        return "it is a TorchScript program, not weights"
    if "allocate" in text or "can't alloc" in text.lower():
        return "it needs more memory than its size explains"
    text = text.rpartition("WeightsUnpickler error: ")[2]
    first = next((line.strip() for line in text.splitlines() if line.strip()), type(error).__name__)
    return f"it cannot be read as a torch checkpoint ({first[:160]})"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
