"""A checkpoint is a transaction: written to a temporary folder, hashed, synced, renamed. After a power loss at any
moment the newest complete one loads.

    checkpoints/step-00000500/
        weights.safetensors     w/PART/PARAMETER, float32
        shadow.safetensors      ema/PART/PARAMETER, float32 (with optim.ema)
        optimizer.safetensors   opt.STATE/PART/PARAMETER, counts and the loss scale
        state.json              progress, callbacks, the recipe and its resolved values
        manifest.json           written last: schema, step, recipe digest, size and SHA-256 of each file, shape and
        type of each tensor

The manifest lists which file contains which rows of a tensor. If several processes write a checkpoint, each writes its
own files (weights-00001-of-00004.safetensors) with the rows that it holds, or, if the tensors are replicated, with its
share of them. It is still one transaction: the first process chooses the temporary folder, collects what each has
written, and adds state and manifest; if one of them fails, the folder is not renamed and all processes get the error.
Any number of processes can read either kind.

Nothing in it is pickled. docs/reference/checkpoint-format.md specifies the format.
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
"""Bytes of a tensor that are checked, hashed and written at once, while they are in the processor's cache."""
_SUM_SIZE = 32_000
_NAME = re.compile(r"step-(\d{8,})")
_TORCH_NAMES = {
    "F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16",
    "I64": "int64", "I32": "int32", "I16": "int16", "I8": "int8", "U8": "uint8", "BOOL": "bool",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Newest:
    """The newest valid checkpoint, or None; and those that were skipped, with the reason."""

    path: Path | None
    passed_over: tuple[tuple[Path, str], ...] = ()


class DamagedCheckpoint(CheckpointError):
    """A checkpoint that does not match its manifest, and why."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"{path}: {reason}; use another checkpoint", code="E1501")
        self.path, self.reason = path, reason


@dataclass(frozen=True, slots=True)
class Restored:
    """Content of a checkpoint: tensors by flat name on the CPU, the full shape of each, the values of state.json."""

    path: Path
    step: int
    tensors: Mapping[str, Tensor]
    values: Mapping[str, Any]
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)


def name_of(step: int) -> str:
    """The folder name of a step's checkpoint."""
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
    """Writes a checkpoint into `folder` synchronously and returns its path. See Transaction."""
    transaction = Transaction(
        folder, step=step, tensors=tensors, values=values, recipe_digest=recipe_digest, runtime=runtime
    )  # fmt: skip
    return transaction.complete(transaction.write(lambda name: pieces_of(tensors[name])))


class Transaction:
    """A checkpoint that is being written into `folder`: created, written, completed. In the end it is either complete
    under its name, or nothing with that name exists.

    runtime: if several processes write it together, all of which create and complete it, each with the tensors that it
    holds; None for one process that holds and writes everything. values: serialized at once. `write` does not
    communicate with other processes, so a thread may call it.
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
        self._temporary = Path(self._share(str(durable.temporary_path(self.path))))
        self._manifest = {"schema": CHECKPOINT_SCHEMA, "step": step, "recipe": recipe_digest}
        self._state = durable.json_text(values)
        self._shares = {name: sharding.share_of(name, runtime.shares) if runtime else None for name in tensors}
        written = sharding.select_written(runtime, tensors) if runtime else tensors.keys()
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
        """The tensors that this process writes, by flat name, in the order in which `write` reads them."""
        return {name: self._tensors[name] for header in self._headers.values() for name in header}

    def write(self, pieces: Callable[[str], Iterable[Tensor]]) -> str:
        """Writes this process's tensors to the temporary folder, hashed as they are written. pieces: yields the bytes
        of a tensor by its flat name, uint8 on the CPU. Returns the argument of `complete`: what was written, or the
        error."""
        with self._remove_on_failure():
            return _attempt(lambda: self._write_own_files(pieces))

    def complete(self, outcome: str) -> Path:
        """Adds state and manifest, and renames the checkpoint. Raises the error of any process on every process:
        Diverged E1603 if a weight is not finite, StorageError if a write fails (older checkpoints are not changed)."""
        with self._remove_on_failure():
            outcomes = [json.loads(text) for text in self._gather(outcome)]
            failed = [of_rank for of_rank in outcomes if "error" in of_rank]
            if not failed:
                last = _attempt(lambda: self._finalize(outcomes)) if self._is_first else ""
                failed = [of_rank for of_rank in [json.loads(self._share(last))] if "error" in of_rank]
            if failed:
                kind = Diverged if failed[0]["kind"] == "Diverged" else StorageError
                raise kind(failed[0]["error"], code=failed[0]["code"])
        return self.path

    @contextmanager
    def _remove_on_failure(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            if self._is_first and self._temporary.exists():
                with suppress(OSError):  # the next start removes it
                    durable.remove_tree(self._temporary)
            raise

    def _write_own_files(self, pieces: Callable[[str], Iterable[Tensor]]) -> dict[str, Any]:
        """Returns size and hash of this process's files, and its part of the manifest."""
        files: dict[str, Any] = {}
        table: dict[str, dict[str, Any]] = {}
        not_finite: dict[str, int] = {}
        with durable.storage_errors(self.path, needed=sum(t.nbytes for t in self._tensors.values())):
            self._temporary.parent.mkdir(exist_ok=True)
            self._temporary.mkdir(exist_ok=True)  # not its parents: a removed run folder is not created again
            for file, header in self._headers.items():
                digest = hashlib.sha256()
                content = self._check_pieces(header, pieces, not_finite)
                size = tensor_files.write_pieces(self._temporary / file, header, content, digest=digest)
                files[file] = {"bytes": size, "sha256": digest.hexdigest()}
                for name in header:
                    table[name] = sharding.table_entry(self._tensors[name], file, self._shares[name])
                fault_injection.reach("checkpoint.file")
        self._raise_if_any(not_finite)
        return {"files": files, "tensors": table}

    def _check_pieces(
        self, names: Iterable[str], pieces: Callable[[str], Iterable[Tensor]], not_finite: dict[str, int]
    ) -> Iterator[Tensor]:
        """Yields the pieces and counts non-finite values. not_finite: receives their number by tensor."""
        for name in names:
            tensor = self._tensors[name]
            for piece in pieces(name):
                if tensor_files.can_be_checked(tensor) and (count := _not_finite(piece.view(tensor.dtype))):
                    not_finite[name] = not_finite.get(name, 0) + count
                yield piece

    def _raise_if_any(self, not_finite: Mapping[str, int]) -> None:
        """Raises Diverged E1603 for non-finite weights, or their average, and WeightsError E1403 for other tensors."""
        weights = [name for name in self._tensors if name in not_finite and name.startswith(("w/", "ema/"))]
        if weights:
            raise Diverged(
                f"{weights[0]} and {len(weights) - 1} more tensors contain values that are not finite; "
                "nothing was saved, the newest checkpoint is intact",
                code="E1603",
            )
        for name, count in not_finite.items():
            raise tensor_files.not_finite(self.path, name, count, self._tensors[name].numel())

    def _finalize(self, outcomes: list[dict[str, Any]]) -> dict[str, Any]:
        """Adds `state.json` and the manifest to the temporary folder and renames it. outcomes: what each process has
        written."""
        with durable.storage_errors(self.path):
            durable.write_file(self._temporary / "state.json", self._state)
            content = self._state.encode()
            files = {name: file for of_rank in outcomes for name, file in of_rank["files"].items()}
            self._require_all(files)
            files["state.json"] = {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
            tensors = sharding.join_tables([of_rank["tensors"] for of_rank in outcomes])
            durable.write_json(self._temporary / "manifest.json", self._manifest | {"files": files, "tensors": tensors})
            fault_injection.reach("checkpoint.manifest")
            durable.move_into_place(self._temporary, self.path)
            fault_injection.reach("checkpoint.renamed")
        return {}

    def _require_all(self, files: Mapping[str, Mapping[str, Any]]) -> None:
        """Raises StorageError E1846 if a file of another process is missing in this process's view of the folder."""
        for name, file in files.items():
            path = self._temporary / name
            if not path.is_file() or path.stat().st_size != file["bytes"]:
                raise StorageError(
                    f"{self.path}: {name} was written by another process but is missing: the run folder is not on "
                    "storage that all machines share; move it there, or set run.save.sharded=false",
                    code="E1846",
                )


def _attempt(work: Callable[[], dict[str, Any]]) -> str:
    """Runs the work. Returns its result or its error as JSON, to be sent to other processes."""
    try:
        return json.dumps(work())
    except MezzotintError as error:
        return json.dumps({"error": error.message, "code": error.code, "kind": type(error).__name__})


def pieces_of(tensor: Tensor) -> Iterator[Tensor]:
    """Yields the bytes of a tensor, uint8 on the CPU, PIECE at a time; views if it is contiguous on the CPU."""
    yield from tensor.detach().to("cpu").contiguous().reshape(-1).view(torch.uint8).split(PIECE)


def _not_finite(numbers: Tensor) -> int:
    """Number of non-finite values. If the sum is finite, so are all values."""
    if numbers.dtype in (torch.float32, torch.float64):
        with np.errstate(all="ignore"):
            is_finite = math.isfinite(np.add.reduce(numbers.numpy()))  # single-threaded: training needs the other cores
    else:  # in parts so small that torch uses one thread
        is_finite = all(math.isfinite(part.sum(dtype=torch.float32)) for part in numbers.split(_SUM_SIZE))
    return 0 if is_finite else int((~torch.isfinite(numbers)).sum())


def file_of(name: str, ending: str = "") -> str:
    """The file that contains a tensor."""
    kind = {"w": "weights", "ema": "shadow"}.get(name.partition("/")[0], "optimizer")
    return f"{kind}{ending}.safetensors"


def find_damage(path: Path, *, hashes: bool = True) -> str | None:
    """Why a checkpoint is not valid, with the file; None if every file matches the manifest. hashes: whether tensor
    files are read and hashed; otherwise only their sizes and headers are checked."""
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
        return f"manifest.json is of step {manifest.get('step')}, but the folder is {path.name}"
    if "state.json" not in manifest["files"]:
        return "manifest.json does not list state.json"
    try:
        reasons = (_file_damage(path, name, expected, hashes) for name, expected in manifest["files"].items())
        reason = next(filter(None, reasons), None) or _table_damage(path, manifest)
        # if a header is wrong, the hash shows which file is damaged
        return find_damage(path) or reason if reason and not hashes else reason
    except WeightsError:
        return find_damage(path) if not hashes else OTHER_TENSORS
    except OSError as error:
        return f"{error.filename or 'one of its files'} cannot be read ({error.strerror or error})"


def _file_damage(path: Path, name: str, expected: Any, hashes: bool) -> str | None:
    if not re.fullmatch(r"[A-Za-z0-9_-]+\.(safetensors|json)", name) or not isinstance(expected, dict):
        return f"manifest.json lists {name!r}, which is not a checkpoint file"
    file = path / name
    if not file.is_file():
        return f"{name} is missing"
    if file.stat().st_size != expected.get("bytes"):
        return f"{name} has {file.stat().st_size:,} bytes, but {expected.get('bytes')} according to manifest.json"
    is_read = hashes or file.suffix == ".json"
    if "sha256" not in expected or (is_read and durable.sha256(file) != expected["sha256"]):
        return _hash_mismatch(name)
    return None


def _hash_mismatch(name: str) -> str:
    return f"{name} is damaged: its SHA-256 differs from manifest.json"


def _table_damage(path: Path, manifest: Mapping[str, Any]) -> str | None:
    """Compares the manifest, which has no hash itself, with the headers of the tensor files."""
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
    """The step in a checkpoint's name; -1 for another name."""
    name = _NAME.fullmatch(path.name)
    return int(name[1]) if name else -1


def list_checkpoints(folder: Path) -> list[Path]:
    """All folders with a checkpoint's name, complete or not, newest step first."""
    paths = folder.iterdir() if folder.is_dir() else ()
    return sorted((path for path in paths if step_of(path) >= 0 and path.is_dir()), key=step_of, reverse=True)


def newest_valid(
    folder: Path, *, hashes: bool = True, damaged: Mapping[Path, str] = MappingProxyType({}),
    unfit: Callable[[Path], str | None] = lambda path: None,
) -> Newest:  # fmt: skip
    """The newest valid checkpoint (see `find_damage`), by step, never by file time. damaged: checkpoints already known
    to be damaged, with the reason. unfit: returns why a run cannot resume from a checkpoint with intact files, or None.
    Raises CheckpointError E1521 for a checkpoint of an older version."""
    skipped: list[tuple[Path, str]] = []
    for path in list_checkpoints(folder):
        refuse_older_checkpoint(path)
        reason = damaged.get(path) or find_damage(path, hashes=hashes) or unfit(path)
        if reason is None:
            return Newest(path, tuple(skipped))
        skipped.append((path, reason))
    return Newest(None, tuple(skipped))


def read(path: Path, *, tensors: bool = True) -> Restored:
    """Reads a checkpoint and verifies what it reads. tensors: whether to read full tensors, too. Raises
    DamagedCheckpoint E1501 with the file that is wrong, CheckpointError E1521 for one of an older version."""
    refuse_older_checkpoint(path)
    reason = find_damage(path, hashes=False)
    if reason is not None:
        raise DamagedCheckpoint(path, reason)
    manifest = _manifest(path)
    values = outside.read_json(path / "state.json", limit=outside.LISTED)
    shapes = {name: tuple(entry["shape"]) for name, entry in manifest["tensors"].items()}
    return Restored(path, int(manifest["step"]), tensors_of(path) if tensors else {}, values, shapes)


def tensors_of(
    path: Path, shares: Mapping[str, sharding.Share] = MappingProxyType({}), *, hashes: bool = True
) -> dict[str, Tensor]:
    """The tensors of a checkpoint whose manifest and headers have been verified, by flat name. shares: by parameter,
    the rows to load; other tensors are loaded in full. hashes: whether files are hashed as they are read; if another
    process does that, only the values are checked.

    Holds one file in memory at a time, in addition to the result. Raises DamagedCheckpoint E1501, WeightsError E1403.
    """
    manifest = _manifest(path)
    tensors: dict[str, Tensor] = {}
    for file in manifest["files"]:
        if file.endswith(".safetensors"):
            for name, held in _read_file(path, file, manifest["files"][file] if hashes else None).items():
                entry = manifest["tensors"][name]
                start = next(piece["start"] for piece in entry["rows"] if piece["file"] == file)
                sharding.copy_rows(tensors, name, held, tuple(entry["shape"]), start, sharding.share_of(name, shares))
    return tensors


def _read_file(path: Path, file: str, expected: Mapping[str, Any] | None) -> dict[str, Tensor]:
    """expected: the file's entry in the manifest, to verify it; None for no verification."""
    if expected is None:
        return tensor_files.read(path / file)
    try:
        tensors, digest = tensor_files.read_hashed(path / file)
    except (OSError, EOFError, WeightsError) as error:
        raise DamagedCheckpoint(path, f"{file} cannot be read ({error})") from error
    if digest != expected["sha256"]:
        raise DamagedCheckpoint(path, _hash_mismatch(file))
    tensor_files.require_finite(path / file, tensors)
    return tensors


def _manifest(path: Path) -> dict[str, Any]:
    manifest: dict[str, Any] = outside.read_json(path / "manifest.json", limit=outside.LISTED)
    return manifest


class Verified:
    """Checkpoints that this process has written or hashed: they are not hashed again while name, inode, size and time
    of the files are the same."""

    def __init__(self) -> None:
        self._stamps: dict[Path, list[tuple[str, int, int, int]]] = {}

    def add(self, path: Path) -> None:
        """Adds a checkpoint with its current files."""
        self._stamps[path] = _stamps(path)

    def reason_against(self, path: Path) -> str | None:
        """As `find_damage`, for checkpoints not verified yet. Adds a valid one."""
        if path in self._stamps and self._stamps[path] == _stamps(path):
            return None
        reason = find_damage(path)
        if reason is None:
            self.add(path)
        return reason


def _stamps(path: Path) -> list[tuple[str, int, int, int]]:
    with suppress(OSError):
        files = [(file.name, file.stat()) for file in path.iterdir()]
        return sorted((name, stat.st_ino, stat.st_size, stat.st_mtime_ns) for name, stat in files)
    return []


def prune(
    folder: Path, keep: int | None, verified: Verified | None = None, *, protected: Collection[Path | None] = ()
) -> list[Path]:  # fmt: skip
    """Removes all but the newest `keep` valid checkpoints; returns the removed ones. None keeps all. protected: others
    that are kept as well.

    A damaged checkpoint does not count: it is neither kept in place of a valid one nor a reason to remove one.
    """
    if keep is None or len(list_checkpoints(folder)) <= keep:  # nothing to remove: nothing needs to be read and hashed
        return []
    verified = verified or Verified()
    valid: list[Path] = []
    removed = []
    for path in list_checkpoints(folder):
        if len(valid) < keep:
            if verified.reason_against(path) is None:
                valid.append(path)
        elif valid and path not in protected:
            fault_injection.reach("checkpoint.prune")
            durable.remove_tree(path)
            removed.append(path)
    return removed


def fits(
    restored: Restored, expected: Mapping[str, Tensor], shares: Mapping[str, sharding.Share] = MappingProxyType({})
) -> None:
    """Compares names and shapes of a checkpoint's tensors with those of the run. shares: the rows of each parameter
    that this process holds, if not all. Raises CheckpointError E1502 with counts and first names."""
    shapes = {name: sharding.full_shape(name, tensor, shares) for name, tensor in expected.items()}
    missing = [name for name in shapes if name not in restored.shapes and not name.startswith("scaler/")]
    wrong = [name for name, shape in shapes.items() if restored.shapes.get(name, shape) != shape]
    spare = [name for name in restored.shapes if name not in shapes and not name.startswith(("scaler/", "opt."))]
    if missing or wrong or spare:
        parts = [
            f"{len(names)} {problem} ({counting.format_names(names, 3)})"
            for names, problem in ((missing, "missing"), (wrong, "with another shape"), (spare, "not in this run"))
            if names
        ]
        raise CheckpointError(
            f"{restored.path}: its tensors do not match this run: {'; '.join(parts)}; "
            "the recipe trains other parts or another model than the checkpoint",
            code="E1502",
        )
