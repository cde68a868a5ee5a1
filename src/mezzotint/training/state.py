"""A checkpoint is a transaction: written aside, hashed, synced, renamed. Whatever moment the power goes, the newest
complete one loads.

    checkpoints/step-00000500/
        weights.safetensors     w/PART/PARAMETER, float32
        shadow.safetensors      ema/PART/PARAMETER, float32 (with optim.ema)
        optimizer.safetensors   opt.STATE/PART/PARAMETER, counts and the loss scale
        state.json              progress, callbacks, the recipe and what it was resolved to
        manifest.json           written last: schema, step, recipe digest, size and SHA-256 of each file, shape and
        type of each tensor

Where processes share the weights, each writes its rows into files of its own (weights-00001-of-00004.safetensors), and
the manifest says which rows of a tensor lie where (schema 2). It is one transaction all the same: the first process
names the place aside, hears what each has written, and adds state and manifest; when one of them fails, nothing gets a
name and all hear why. Any number of processes reads either.

Nothing in it is pickled. docs/reference/checkpoint-format.md specifies it for other readers.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from mezzotint import durable, fault_injection, outside
from mezzotint.errors import CheckpointError, Diverged, MezzotintError, StorageError
from mezzotint.runtimes.base import Runtime
from mezzotint.training import sharding
from mezzotint.weights.files import tensor_files

SCHEMA, SCHEMA_OF_ROWS = 1, 2
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
    """Writes a checkpoint into `folder` and returns its path. Either it is complete under its name, or nothing of that
    name is there.

    runtime: of processes that share the weights, which all call this together, each with the tensors that it holds;
    None for one that holds everything. Raises, on each of them, what any has met: Diverged E1603 when a weight is not
    finite (nothing is written), StorageError when the disk refuses (older ones are untouched).
    """
    final = folder / name_of(step)
    fault_injection.reach("checkpoint.begin")
    share, gather = (runtime.share, runtime.gather) if runtime else (str, lambda text: (text,))
    is_first = runtime is None or runtime.is_first
    aside = Path(share(str(folder / f".partial-{name_of(step)}-{secrets.token_hex(4)}")))
    manifest = {"schema": SCHEMA_OF_ROWS if runtime else SCHEMA, "step": step, "recipe": recipe_digest}
    try:
        answers = [json.loads(one) for one in gather(_attempt(lambda: _write_mine(aside, final, tensors, runtime)))]
        failed = [answer for answer in answers if "error" in answer]
        if not failed:
            outcome = _attempt(lambda: _complete(aside, final, manifest, answers, values)) if is_first else ""
            failed = [answer for answer in [json.loads(share(outcome))] if "error" in answer]
        if failed:
            kind = Diverged if failed[0]["kind"] == "Diverged" else StorageError
            raise kind(failed[0]["error"], code=failed[0]["code"])
    except BaseException:
        if is_first and aside.exists():
            durable.remove_tree(aside)
        raise
    return final


def _attempt(work: Callable[[], dict[str, Any]]) -> str:
    """What the work gives, or what it met, as JSON that other processes hear."""
    try:
        return json.dumps(work())
    except MezzotintError as error:
        return json.dumps({"error": error.message, "code": error.code, "kind": type(error).__name__})


def _write_mine(aside: Path, final: Path, tensors: Mapping[str, Tensor], runtime: Runtime | None) -> dict[str, Any]:
    """Writes what this process has to write; returns size and hash of its files, and its part of the manifest's
    table."""
    shares = {name: sharding.share_of(name, runtime.shares) if runtime else None for name in tensors}
    mine = {name: tensor for name, tensor in tensors.items() if _is_written_here(shares[name], runtime)}
    refuse_non_finite(mine)
    ending = f"-{runtime.rank + 1:05d}-of-{runtime.world_size:05d}" if runtime else ""
    files: dict[str, Any] = {}
    table: dict[str, dict[str, Any]] = {}
    by_file: dict[str, dict[str, Tensor]] = {}
    for name, tensor in mine.items():
        by_file.setdefault(file_of(name, ending), {})[name] = tensor.detach()
        entry = sharding.table_entry(tensor, file_of(name, ending), shares[name])
        table[name] = entry if runtime else {key: entry[key] for key in ("shape", "dtype")} | {"file": file_of(name)}
    with durable.storage_errors(final, needed=sum(t.numel() * t.element_size() for t in mine.values())):
        aside.mkdir(parents=True, exist_ok=True)
        for file, content in sorted(by_file.items()):
            tensor_files.write(content, aside / file, {"format": "pt"})
            files[file] = _size_and_hash(aside / file)
            fault_injection.reach("checkpoint.file")
    return {"files": files, "tensors": table}


def _is_written_here(share: sharding.Share | None, runtime: Runtime | None) -> bool:
    """Of what is shared by the process that has rows, where no other writes the same; the rest by the first."""
    if runtime is None or share is None or 0 in share.shape:
        return runtime is None or runtime.is_first
    return runtime.is_writer and share.start < share.stop


def _complete(
    aside: Path, final: Path, manifest: dict[str, Any], answers: list[dict[str, Any]], values: Mapping[str, Any]
) -> dict[str, Any]:
    """Adds `state.json` and the manifest to the files that lie aside, and gives the folder its name. answers: what each
    process has written."""
    with durable.storage_errors(final):
        durable.write_json(aside / "state.json", values)
        manifest["files"] = {name: file for answer in answers for name, file in answer["files"].items()}
        manifest["files"]["state.json"] = _size_and_hash(aside / "state.json")
        manifest["tensors"] = sharding.joined([answer["tensors"] for answer in answers])
        durable.write_json(aside / "manifest.json", manifest)
        fault_injection.reach("checkpoint.manifest")
        durable.take_place(aside, final)
        fault_injection.reach("checkpoint.renamed")
    return {}


def _size_and_hash(path: Path) -> dict[str, Any]:
    return {"bytes": path.stat().st_size, "sha256": durable.sha256(path)}


def file_of(name: str, ending: str = "") -> str:
    """The file that a tensor belongs to."""
    kind = {"w": "weights", "ema": "shadow"}.get(name.partition("/")[0], "optimizer")
    return f"{kind}{ending}.safetensors"


def refuse_non_finite(tensors: Mapping[str, Tensor]) -> None:
    """Raises Diverged E1603 for weights, or their average, that are not finite."""
    checked = {n: t for n, t in tensors.items() if n.startswith(("w/", "ema/")) and t.is_floating_point() and t.numel()}
    by_device: dict[torch.device, list[Tensor]] = {}
    for tensor in checked.values():
        by_device.setdefault(tensor.device, []).append(tensor.detach().abs().amax())
    if all(bool(torch.isfinite(torch.stack(worst)).all()) for worst in by_device.values()):
        return
    broken = [name for name, tensor in checked.items() if not bool(torch.isfinite(tensor).all())]
    raise Diverged(
        f"{broken[0]} and {len(broken) - 1} more tensors hold values that are not finite; "
        "nothing was saved, the newest checkpoint is whole",
        code="E1603",
    )


def damage(path: Path) -> str | None:
    """Why a checkpoint cannot be trusted, naming the file; None when every file is what its manifest says."""
    manifest_path = path / "manifest.json"
    try:
        manifest = outside.read_json(manifest_path, limit=outside.LISTED)
    except FileNotFoundError:
        return "manifest.json is missing"
    except (OSError, ValueError):
        return "manifest.json cannot be read"
    if not isinstance(manifest, dict) or not isinstance(manifest.get("files"), dict):
        return "manifest.json has no list of files"
    if manifest.get("schema") not in (SCHEMA, SCHEMA_OF_ROWS):
        return (
            f"it has format {manifest.get('schema')}, this version reads {SCHEMA} and {SCHEMA_OF_ROWS}; it was "
            "written by another version"
        )
    if step_of(path) >= 0 and manifest.get("step") != step_of(path):
        return f"manifest.json says step {manifest.get('step')}, the folder {path.name}"
    if "state.json" not in manifest["files"]:
        return "manifest.json does not list state.json"
    try:
        reasons = (_file_damage(path, name, expected) for name, expected in manifest["files"].items())
        return next(filter(None, reasons), None) or _table_damage(path, manifest)
    except OSError as error:
        return f"{error.filename or 'a file of it'} cannot be read ({error.strerror or error})"


def _file_damage(path: Path, name: str, expected: Any) -> str | None:
    if not re.fullmatch(r"[A-Za-z0-9_-]+\.(safetensors|json)", name) or not isinstance(expected, dict):
        return f"manifest.json lists {name!r}, which no checkpoint has"
    file = path / name
    if not file.is_file():
        return f"{name} is missing"
    if file.stat().st_size != expected.get("bytes"):
        return f"{name} has {file.stat().st_size:,} bytes, its manifest says {expected.get('bytes')}"
    if durable.sha256(file) != expected.get("sha256"):
        return f"{name} is damaged: its SHA-256 is not the manifest's"
    return None


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
    listed_tensors = manifest.get("tensors")
    if manifest["schema"] == SCHEMA_OF_ROWS:
        return sharding.damage(listed_tensors, shapes)
    there = {name: {**kept, "file": file} for file, tensors in shapes.items() for name, kept in tensors.items()}
    return None if listed_tensors == there else sharding.OTHER_TENSORS


def step_of(path: Path) -> int:
    """The step that a checkpoint's name says; -1 for another name."""
    name = _NAME.fullmatch(path.name)
    return int(name[1]) if name else -1


def listed(folder: Path) -> list[Path]:
    """All folders with a checkpoint's name, newest step first; complete or not."""
    paths = folder.iterdir() if folder.is_dir() else ()
    return sorted((path for path in paths if step_of(path) >= 0 and path.is_dir()), key=step_of, reverse=True)


def newest(folder: Path) -> Newest:
    """The newest checkpoint that verifies. Order is by step, never by file time."""
    passed: list[tuple[Path, str]] = []
    for path in listed(folder):
        reason = damage(path)
        if reason is None:
            return Newest(path, tuple(passed))
        passed.append((path, reason))
    return Newest(None, tuple(passed))


def read(path: Path, *, tensors: bool = True) -> Restored:
    """Reads a checkpoint after verifying it. tensors: whether those are read as well, each as a whole. Raises
    CheckpointError E1501 naming the file that is wrong."""
    reason = damage(path)
    if reason is not None:
        raise CheckpointError(f"{path}: {reason}; take another checkpoint", code="E1501")
    manifest = _manifest(path)
    values = outside.read_json(path / "state.json", limit=outside.LISTED)
    shapes = {name: tuple(entry["shape"]) for name, entry in manifest["tensors"].items()}
    return Restored(path, int(manifest["step"]), tensors_of(path) if tensors else {}, values, shapes)


def tensors_of(path: Path, shares: Mapping[str, sharding.Share] = MappingProxyType({})) -> dict[str, Tensor]:
    """The tensors of a checkpoint that is known to verify, by flat name. shares: by parameter, the rows that this
    process holds; of the parameters that are not named, and of numbers that belong to none, everything.

    One file is in memory at a time, besides what is returned.
    """
    manifest = _manifest(path)
    tensors: dict[str, Tensor] = {}
    for file in manifest["files"]:
        if file.endswith(".safetensors"):
            for name, held in tensor_files.read(path / file).items():
                entry = manifest["tensors"][name]
                start = next((p["start"] for p in entry.get("rows", ()) if p["file"] == file), 0)
                sharding.take(tensors, name, held, tuple(entry["shape"]), start, sharding.share_of(name, shares))
    return tensors


def _manifest(path: Path) -> dict[str, Any]:
    manifest: dict[str, Any] = outside.read_json(path / "manifest.json", limit=outside.LISTED)
    return manifest


def prune(folder: Path, keep: int | None) -> list[Path]:
    """Removes all but the newest `keep` checkpoints, once the newest is known to verify; returns what went. None keeps
    all.

    What is damaged counts as nothing: it is neither kept in place of a whole one nor a reason to remove one.
    """
    if keep is None or len(listed(folder)) <= keep:  # nothing to take, so nothing has to be read and hashed again
        return []
    whole: list[Path] = []
    gone = []
    for path in listed(folder):
        if len(whole) < keep:
            if damage(path) is None:
                whole.append(path)
        elif whole:
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
            f"{len(names)} {word} ({', '.join(names[:3])}{', …' if len(names) > 3 else ''})"
            for names, word in ((missing, "missing"), (wrong, "of another shape"), (spare, "not in this run"))
            if names
        ]
        raise CheckpointError(
            f"{restored.path}: its tensors are not this run's: {'; '.join(parts)}; "
            "the recipe trains other parts or another model than the checkpoint",
            code="E1502",
        )
