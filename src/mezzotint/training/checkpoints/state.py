"""A checkpoint is a transaction: written aside, hashed, synced, renamed. Whatever moment the power goes, the newest
complete one loads.

    checkpoints/step-00000500/
        weights.safetensors     w/PART/PARAMETER, float32
        shadow.safetensors      ema/PART/PARAMETER, float32 (with optim.ema)
        optimizer.safetensors   opt.STATE/PART/PARAMETER, counts and the loss scale
        state.json              progress, callbacks, the recipe and what it was resolved to
        manifest.json           written last: schema, step, recipe digest, size and SHA-256 of each file, shape and
        type of each tensor

The manifest says which rows of a tensor lie where. Where several processes write it, each has files of its own
(weights-00001-of-00004.safetensors) with the rows that it holds, or, where all hold everything, with its part of the
tensors. It is one transaction all the same: the first process
names the place aside, hears what each has written, and adds state and manifest; when one of them fails, nothing gets a
name and all hear why. Any number of processes reads either.

Nothing in it is pickled. docs/reference/checkpoint-format.md specifies it for other readers.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mezzotint import durable, fault_injection, outside
from mezzotint.errors import CheckpointError, Diverged, MezzotintError, StorageError, WeightsError
from mezzotint.run_folder import CHECKPOINT_SCHEMA, refuse_older_checkpoint
from mezzotint.runtimes.base import Runtime
from mezzotint.settings import counting
from mezzotint.training.checkpoints import sharding
from mezzotint.training.checkpoints.sharding import OTHER_TENSORS
from mezzotint.weights.files import tensor_files

PIECE = 1 << 20
"""Bytes of a tensor that are checked, hashed and written at once, while they are near the processor."""
_SUMMED = 32_000
_NAME = re.compile(r"step-(\d{8,})")
_TORCH_NAMES = {
    "F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16",
    "I64": "int64", "I32": "int32", "I16": "int16", "I8": "int8", "U8": "uint8", "BOOL": "bool",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Newest:
    """The newest checkpoint that verifies, or None; and those passed over, with the reason."""

    path: Path | None
    passed_over: tuple[tuple[Path, str], ...] = ()


class DamagedCheckpoint(CheckpointError):
    """A checkpoint that is not what its manifest says, and why."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"{path}: {reason}; take another checkpoint", code="E1501")
        self.path, self.reason = path, reason


@dataclass(frozen=True, slots=True)
class Restored:
    """What a checkpoint holds: tensors by flat name on the CPU, the shape that each has as a whole, and the JSON beside
    them."""

    path: Path
    step: int
    tensors: Mapping[str, Tensor]
    values: Mapping[str, Any]
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)


def name_of(step: int) -> str:
    """The folder's name of a step's checkpoint."""
    return f"step-{step:08d}"


def write(
    folder: Path,
    *,
    step: int,
    tensors: Mapping[str, Tensor],
    values: Mapping[str, Any],
    recipe_digest: str,
    runtime: Runtime | None = None,
) -> Path:
    """Writes a checkpoint into `folder` while the caller waits, and returns its path. See Transaction."""
    one = Transaction(
        folder, step=step, tensors=tensors, values=values, recipe_digest=recipe_digest, runtime=runtime
    )  # fmt: skip
    return one.complete(one.write(lambda name: pieces_of(tensors[name])))


class Transaction:
    """A checkpoint that is being written into `folder`: begun, written, completed. Either it is complete under its name
    in the end, or nothing of that name is there.

    runtime: of processes that write it together, which all begin and complete this, each with the tensors that it
    holds; None for one that holds and writes everything. values: written as they are now. `write` speaks to no other
    process, so that a thread may do it.
    """

    def __init__(
        self,
        folder: Path,
        *,
        step: int,
        tensors: Mapping[str, Tensor],
        values: Mapping[str, Any],
        recipe_digest: str,
        runtime: Runtime | None = None,
    ) -> None:
        fault_injection.reach("checkpoint.begin")
        self.step, self.path = step, folder / name_of(step)
        self._runtime, self._is_first = runtime, runtime is None or runtime.is_first
        self._share: Callable[[str], str] = runtime.share if runtime else str
        self._gather: Callable[[str], tuple[str, ...]] = runtime.gather if runtime else lambda text: (text,)
        self._aside = Path(self._share(str(durable.aside_of(self.path))))
        self._manifest = {"schema": CHECKPOINT_SCHEMA, "step": step, "recipe": recipe_digest}
        self._state = durable.json_text(values)
        self._shares = {name: sharding.share_of(name, runtime.shares) if runtime else None for name in tensors}
        written = sharding.written_by(runtime, tensors) if runtime else tensors.keys()
        self._tensors = {name: tensor.detach() for name, tensor in tensors.items() if name in written}
        ending = f"-{runtime.rank + 1:05d}-of-{runtime.world_size:05d}" if runtime else ""
        self._headers: dict[str, dict[str, tensor_files.TensorInfo]] = {}
        by_file: dict[str, dict[str, Tensor]] = {}
        for name, tensor in self._tensors.items():
            by_file.setdefault(file_of(name, ending), {})[name] = tensor
        for file, content in sorted(by_file.items()):
            self._headers[file] = tensor_files.header_of(content, {name: t.dtype for name, t in content.items()})

    @property
    def tensors(self) -> dict[str, Tensor]:
        """What this process writes, by flat name, in the order in which `write` asks for it."""
        return {name: self._tensors[name] for header in self._headers.values() for name in header}

    def write(self, pieces: Callable[[str], Iterable[Tensor]]) -> str:
        """Writes this process's tensors aside, hashed as they are written. pieces: the bytes of a tensor by its flat
        name, uint8 on the CPU. Returns what `complete` takes: what was written, or what went wrong."""
        with self._removed_on_failure():
            return _attempt(lambda: self._write_mine(pieces))

    def complete(self, outcome: str) -> Path:
        """Adds state and manifest, and gives the checkpoint its name. Raises, on each process, what any has met:
        Diverged E1603 when a weight is not finite, StorageError when the disk refuses (older checkpoints are
        untouched)."""
        with self._removed_on_failure():
            answers = [json.loads(one) for one in self._gather(outcome)]
            failed = [answer for answer in answers if "error" in answer]
            if not failed:
                last = _attempt(lambda: self._name(answers)) if self._is_first else ""
                failed = [answer for answer in [json.loads(self._share(last))] if "error" in answer]
            if failed:
                kind = Diverged if failed[0]["kind"] == "Diverged" else StorageError
                raise kind(failed[0]["error"], code=failed[0]["code"])
        return self.path

    @contextmanager
    def _removed_on_failure(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            if self._is_first and self._aside.exists():
                with suppress(OSError):  # the next start sweeps it
                    durable.remove_tree(self._aside)
            raise

    def _write_mine(self, pieces: Callable[[str], Iterable[Tensor]]) -> dict[str, Any]:
        """Returns size and hash of this process's files, and its part of the manifest's table."""
        files: dict[str, Any] = {}
        table: dict[str, dict[str, Any]] = {}
        not_finite: dict[str, int] = {}
        with durable.storage_errors(self.path, needed=sum(t.nbytes for t in self._tensors.values())):
            self._aside.parent.mkdir(exist_ok=True)
            self._aside.mkdir(exist_ok=True)  # never what lies above: a run folder that has gone is not made again
            for file, header in self._headers.items():
                digest = hashlib.sha256()
                content = self._counted(header, pieces, not_finite)
                size = tensor_files.write_pieces(self._aside / file, header, content, digest=digest)
                files[file] = {"bytes": size, "sha256": digest.hexdigest()}
                for name in header:
                    table[name] = sharding.table_entry(self._tensors[name], file, self._shares[name])
                fault_injection.reach("checkpoint.file")
        self._refuse(not_finite)
        return {"files": files, "tensors": table}

    def _counted(
        self, names: Iterable[str], pieces: Callable[[str], Iterable[Tensor]], not_finite: dict[str, int]
    ) -> Iterator[Tensor]:
        """The pieces, looked at on their way. not_finite: gets how many numbers of a tensor are not finite."""
        for name in names:
            tensor = self._tensors[name]
            for piece in pieces(name):
                if tensor_files.can_be_checked(tensor) and (count := _not_finite(piece.view(tensor.dtype))):
                    not_finite[name] = not_finite.get(name, 0) + count
                yield piece

    def _refuse(self, not_finite: Mapping[str, int]) -> None:
        """Raises Diverged E1603 for weights, or their average, that are not finite, and WeightsError E1403 for
        others."""
        weights = [name for name in self._tensors if name in not_finite and name.startswith(("w/", "ema/"))]
        if weights:
            raise Diverged(
                f"{weights[0]} and {len(weights) - 1} more tensors hold values that are not finite; "
                "nothing was saved, the newest checkpoint is whole",
                code="E1603",
            )
        for name, count in not_finite.items():
            raise tensor_files.not_finite(self.path, name, count, self._tensors[name].numel())

    def _name(self, answers: list[dict[str, Any]]) -> dict[str, Any]:
        """Adds `state.json` and the manifest to the files that lie aside, and gives the folder its name. answers: what
        each process has written."""
        with durable.storage_errors(self.path):
            durable.write_file(self._aside / "state.json", self._state)
            content = self._state.encode()
            files = {name: file for answer in answers for name, file in answer["files"].items()}
            self._require_all(files)
            files["state.json"] = {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
            tensors = sharding.joined([answer["tensors"] for answer in answers])
            durable.write_json(self._aside / "manifest.json", self._manifest | {"files": files, "tensors": tensors})
            fault_injection.reach("checkpoint.manifest")
            durable.take_place(self._aside, self.path)
            fault_injection.reach("checkpoint.renamed")
        return {}

    def _require_all(self, files: Mapping[str, Mapping[str, Any]]) -> None:
        """Raises StorageError E1846 where another process has written where this one does not look."""
        for name, file in files.items():
            path = self._aside / name
            if not path.is_file() or path.stat().st_size != file["bytes"]:
                raise StorageError(
                    f"{self.path}: {name} was written by another process, and is not here: the run folder is not on "
                    "storage that all machines see; put it there, or write run.save.sharded=false",
                    code="E1846",
                )


def _attempt(work: Callable[[], dict[str, Any]]) -> str:
    """What the work gives, or what it met, as JSON that other processes hear."""
    try:
        return json.dumps(work())
    except MezzotintError as error:
        return json.dumps({"error": error.message, "code": error.code, "kind": type(error).__name__})


def pieces_of(tensor: Tensor) -> Iterator[Tensor]:
    """The bytes of a tensor, uint8 on the CPU, PIECE at a time: views of it where it lies there in one row."""
    yield from tensor.detach().to("cpu").contiguous().reshape(-1).view(torch.uint8).split(PIECE)


def _not_finite(numbers: Tensor) -> int:
    """How many of the numbers are not finite. A sum that is finite has summands that are."""
    if numbers.dtype in (torch.float32, torch.float64):
        with np.errstate(all="ignore"):
            is_sound = math.isfinite(np.add.reduce(numbers.numpy()))  # in one thread: training needs the others
    else:  # in parts for which torch takes no further threads
        is_sound = all(math.isfinite(part.sum(dtype=torch.float32)) for part in numbers.split(_SUMMED))
    return 0 if is_sound else int((~torch.isfinite(numbers)).sum())


def file_of(name: str, ending: str = "") -> str:
    """The file that a tensor belongs to."""
    kind = {"w": "weights", "ema": "shadow"}.get(name.partition("/")[0], "optimizer")
    return f"{kind}{ending}.safetensors"


def damage(path: Path, *, hashes: bool = True) -> str | None:
    """Why a checkpoint cannot be trusted, naming the file; None when every file is what its manifest says. hashes:
    whether files of tensors are read for that; without, their sizes and headers are looked at."""
    manifest_path = path / "manifest.json"
    try:
        manifest = outside.read_json(manifest_path, limit=outside.LISTED)
    except FileNotFoundError:
        return "manifest.json is missing"
    except (OSError, ValueError):
        return "manifest.json cannot be read"
    if not isinstance(manifest, dict) or not isinstance(manifest.get("files"), dict):
        return "manifest.json has no list of files"
    if manifest.get("schema") != CHECKPOINT_SCHEMA:
        return f"another version wrote it (format {manifest.get('schema')}, this version reads {CHECKPOINT_SCHEMA})"
    if step_of(path) >= 0 and manifest.get("step") != step_of(path):
        return f"manifest.json says step {manifest.get('step')}, the folder {path.name}"
    if "state.json" not in manifest["files"]:
        return "manifest.json does not list state.json"
    try:
        reasons = (_file_damage(path, name, expected, hashes) for name, expected in manifest["files"].items())
        reason = next(filter(None, reasons), None) or _table_damage(path, manifest)
        # of a header that is wrong, the hash tells which file is damaged
        return damage(path) or reason if reason and not hashes else reason
    except WeightsError:
        return damage(path) if not hashes else OTHER_TENSORS
    except OSError as error:
        return f"{error.filename or 'a file of it'} cannot be read ({error.strerror or error})"


def _file_damage(path: Path, name: str, expected: Any, hashes: bool) -> str | None:
    if not re.fullmatch(r"[A-Za-z0-9_-]+\.(safetensors|json)", name) or not isinstance(expected, dict):
        return f"manifest.json lists {name!r}, which no checkpoint has"
    file = path / name
    if not file.is_file():
        return f"{name} is missing"
    if file.stat().st_size != expected.get("bytes"):
        return f"{name} has {file.stat().st_size:,} bytes, its manifest says {expected.get('bytes')}"
    is_read = hashes or file.suffix == ".json"
    if "sha256" not in expected or (is_read and durable.sha256(file) != expected["sha256"]):
        return _other_hash(name)
    return None


def _other_hash(name: str) -> str:
    return f"{name} is damaged: its SHA-256 is not the manifest's"


def _table_damage(path: Path, manifest: Mapping[str, Any]) -> str | None:
    """The manifest itself has no hash: what it says of the tensors must be what the files' headers say."""
    shapes = {
        file: {
            name: {"shape": list(info.shape), "dtype": _TORCH_NAMES.get(info.dtype, info.dtype)}
            for name, info in tensor_files.read_header(path / file).items()
        }
        for file in manifest["files"]
        if file.endswith(".safetensors")
    }
    return sharding.damage(manifest.get("tensors"), shapes)


def step_of(path: Path) -> int:
    """The step that a checkpoint's name says; -1 for another name."""
    name = _NAME.fullmatch(path.name)
    return int(name[1]) if name else -1


def listed(folder: Path) -> list[Path]:
    """All folders with a checkpoint's name, newest step first; complete or not."""
    paths = folder.iterdir() if folder.is_dir() else ()
    return sorted((path for path in paths if step_of(path) >= 0 and path.is_dir()), key=step_of, reverse=True)


def newest(
    folder: Path, *, hashes: bool = True, damaged: Mapping[Path, str] = MappingProxyType({}),
    unfit: Callable[[Path], str | None] = lambda path: None,
) -> Newest:  # fmt: skip
    """The newest checkpoint that verifies (see `damage`). Order is by step, never by file time. damaged: checkpoints
    that are known to be, with the reason. unfit: why one whose files are whole cannot be gone on with, if so. Raises
    CheckpointError E1521 for a checkpoint of an older version."""
    passed: list[tuple[Path, str]] = []
    for path in listed(folder):
        refuse_older_checkpoint(path)
        reason = damaged.get(path) or damage(path, hashes=hashes) or unfit(path)
        if reason is None:
            return Newest(path, tuple(passed))
        passed.append((path, reason))
    return Newest(None, tuple(passed))


def read(path: Path, *, tensors: bool = True) -> Restored:
    """Reads a checkpoint and verifies what it reads. tensors: whether those are read as well, each as a whole. Raises
    DamagedCheckpoint E1501 naming the file that is wrong, CheckpointError E1521 for one of an older version."""
    refuse_older_checkpoint(path)
    reason = damage(path, hashes=False)
    if reason is not None:
        raise DamagedCheckpoint(path, reason)
    manifest = _manifest(path)
    values = outside.read_json(path / "state.json", limit=outside.LISTED)
    shapes = {name: tuple(entry["shape"]) for name, entry in manifest["tensors"].items()}
    return Restored(path, int(manifest["step"]), tensors_of(path) if tensors else {}, values, shapes)


def tensors_of(
    path: Path, shares: Mapping[str, sharding.Share] = MappingProxyType({}), *, hashes: bool = True
) -> dict[str, Tensor]:
    """The tensors of a checkpoint whose manifest and headers are known to be sound, by flat name. shares: by parameter,
    the rows that this process holds; of the parameters that are not named, and of numbers that belong to none,
    everything. hashes: whether files are hashed as they are read; where another process does that, values are looked at
    alone.

    One file is in memory at a time, besides what is returned. Raises DamagedCheckpoint E1501, WeightsError E1403.
    """
    manifest = _manifest(path)
    tensors: dict[str, Tensor] = {}
    for file in manifest["files"]:
        if file.endswith(".safetensors"):
            for name, held in _read_file(path, file, manifest["files"][file] if hashes else None).items():
                entry = manifest["tensors"][name]
                start = next(piece["start"] for piece in entry["rows"] if piece["file"] == file)
                sharding.take(tensors, name, held, tuple(entry["shape"]), start, sharding.share_of(name, shares))
    return tensors


def _read_file(path: Path, file: str, expected: Mapping[str, Any] | None) -> dict[str, Tensor]:
    """expected: what the manifest says of the file, where it is to be verified."""
    if expected is None:
        return tensor_files.read(path / file)
    try:
        tensors, digest = tensor_files.read_hashed(path / file)
    except (OSError, EOFError, WeightsError) as error:
        raise DamagedCheckpoint(path, f"{file} cannot be read ({error})") from error
    if digest != expected["sha256"]:
        raise DamagedCheckpoint(path, _other_hash(file))
    tensor_files.require_finite(path / file, tensors)
    return tensors


def _manifest(path: Path) -> dict[str, Any]:
    manifest: dict[str, Any] = outside.read_json(path / "manifest.json", limit=outside.LISTED)
    return manifest


class Verified:
    """Checkpoints that this process has written, or read to the bit: they are not hashed again while the files are the
    same by name, place, size and time."""

    def __init__(self) -> None:
        self._stamps: dict[Path, list[tuple[str, int, int, int]]] = {}

    def add(self, path: Path) -> None:
        """Takes a checkpoint in, as its files are now."""
        self._stamps[path] = _stamps(path)

    def reason_against(self, path: Path) -> str | None:
        """As `damage`, of what is not known yet. What proves whole is taken in."""
        if path in self._stamps and self._stamps[path] == _stamps(path):
            return None
        reason = damage(path)
        if reason is None:
            self.add(path)
        return reason


def _stamps(path: Path) -> list[tuple[str, int, int, int]]:
    with suppress(OSError):
        looks = [(file.name, file.stat()) for file in path.iterdir()]
        return sorted((name, look.st_ino, look.st_size, look.st_mtime_ns) for name, look in looks)
    return []


def prune(
    folder: Path, keep: int | None, verified: Verified | None = None, *, spared: Collection[Path | None] = ()
) -> list[Path]:  # fmt: skip
    """Removes all but the newest `keep` checkpoints, once the newest is known to verify; returns what went. None keeps
    all. spared: those that stay besides.

    What is damaged counts as nothing: it is neither kept in place of a whole one nor a reason to remove one.
    """
    if keep is None or len(listed(folder)) <= keep:  # nothing to take, so nothing has to be read and hashed again
        return []
    verified = verified or Verified()
    whole: list[Path] = []
    gone = []
    for path in listed(folder):
        if len(whole) < keep:
            if verified.reason_against(path) is None:
                whole.append(path)
        elif whole and path not in spared:
            fault_injection.reach("checkpoint.prune")
            durable.remove_tree(path)
            gone.append(path)
    return gone


def fits(
    restored: Restored, expected: Mapping[str, Tensor], shares: Mapping[str, sharding.Share] = MappingProxyType({})
) -> None:
    """Checks names and shapes of a checkpoint's tensors against the run's own. shares: what this process holds of each
    parameter, where it does not hold all. Raises CheckpointError E1502 with counts and first names."""
    shapes = {name: sharding.whole_shape(name, tensor, shares) for name, tensor in expected.items()}
    missing = [name for name in shapes if name not in restored.shapes and not name.startswith("scaler/")]
    wrong = [name for name, shape in shapes.items() if restored.shapes.get(name, shape) != shape]
    spare = [name for name in restored.shapes if name not in shapes and not name.startswith(("scaler/", "opt."))]
    if missing or wrong or spare:
        parts = [
            f"{len(names)} {word} ({counting.listed(names, 3)})"
            for names, word in ((missing, "missing"), (wrong, "of another shape"), (spare, "not in this run"))
            if names
        ]
        raise CheckpointError(
            f"{restored.path}: its tensors are not this run's: {'; '.join(parts)}; "
            "the recipe trains other parts or another model than the checkpoint",
            code="E1502",
        )
