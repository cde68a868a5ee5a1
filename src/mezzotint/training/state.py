"""A checkpoint is a transaction: written aside, hashed, synced, renamed. Whatever moment the power goes, the newest
complete one loads.

    checkpoints/step-00000500/
        weights.safetensors     w/PART/PARAMETER, float32
        shadow.safetensors      ema/PART/PARAMETER, float32 (with optim.ema)
        optimizer.safetensors   opt.STATE/PART/PARAMETER, counts and the loss scale
        state.json              progress, observers, the recipe and what it was resolved to
        manifest.json           written last: schema, step, recipe digest, size and SHA-256 of each file, shape and
        type of each tensor

Nothing in it is pickled. docs/checkpoint-format.md specifies it for other readers.
"""

from __future__ import annotations

import json
import os
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mezzotint import durable, probes
from mezzotint.errors import CheckpointError, Diverged
from mezzotint.weights import files

SCHEMA = 1
_NAME = re.compile(r"step-(\d{8,})")
_TORCH_NAMES = {
    "F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16",
    "I64": "int64", "I32": "int32", "I16": "int16", "I8": "int8", "U8": "uint8", "BOOL": "bool",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Found:
    """The newest checkpoint that verifies, or None; and those passed over, with the reason."""

    path: Path | None
    passed_over: tuple[tuple[Path, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Restored:
    """What a checkpoint holds: tensors by flat name on the CPU, and the JSON beside them."""

    path: Path
    step: int
    tensors: Mapping[str, Tensor]
    values: Mapping[str, Any]


def name_of(step: int) -> str:
    """The folder's name of a step's checkpoint."""
    return f"step-{step:08d}"


def write(
    folder: Path, *, step: int, tensors: Mapping[str, Tensor], values: Mapping[str, Any], recipe_digest: str
) -> Path:
    """Writes a checkpoint into `folder` and returns its path. Either it is complete under its name, or nothing of that
    name is there.

    Raises Diverged E1603 when a weight is not finite (nothing is written), StorageError when the disk refuses (older
    ones are untouched).
    """
    _refuse_non_finite(tensors)
    final = folder / name_of(step)
    probes.reach("checkpoint.begin")
    aside = folder / f".partial-{name_of(step)}-{secrets.token_hex(4)}"
    size = sum(t.numel() * t.element_size() for t in tensors.values())
    try:
        with durable.storage_errors(final, needed=size):
            aside.mkdir(parents=True)
            listing = _write_files(aside, tensors, values)
            manifest = {
                "schema": SCHEMA,
                "step": step,
                "recipe": recipe_digest,
                "files": listing,
                "tensors": {
                    name: {"shape": list(t.shape), "dtype": str(t.dtype).removeprefix("torch."), "file": _file_of(name)}
                    for name, t in tensors.items()
                },
            }
            durable.write_json(aside / "manifest.json", manifest)
            probes.reach("checkpoint.manifest")
            durable.sync_folder(aside)
            if final.exists():
                durable.remove_tree(final)
            os.replace(aside, final)
            durable.sync_folder(folder)
    except BaseException:
        if aside.exists():
            durable.remove_tree(aside)
        raise
    probes.reach("checkpoint.renamed")
    return final


def _write_files(aside: Path, tensors: Mapping[str, Tensor], values: Mapping[str, Any]) -> dict[str, Any]:
    listing: dict[str, Any] = {}
    by_file: dict[str, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        by_file.setdefault(_file_of(name), {})[name] = tensor.detach()
    for file, content in sorted(by_file.items()):
        files.write(content, aside / file, {"format": "pt"})
        listing[file] = {"bytes": (aside / file).stat().st_size, "sha256": durable.sha256(aside / file)}
        probes.reach("checkpoint.file")
    durable.write_json(aside / "state.json", values)
    listing["state.json"] = {
        "bytes": (aside / "state.json").stat().st_size,
        "sha256": durable.sha256(aside / "state.json"),
    }
    return listing


def _file_of(name: str) -> str:
    if name.startswith("w/"):
        return "weights.safetensors"
    return "shadow.safetensors" if name.startswith("ema/") else "optimizer.safetensors"


def _refuse_non_finite(tensors: Mapping[str, Tensor]) -> None:
    checked = {n: t for n, t in tensors.items() if n.startswith(("w/", "ema/")) and t.is_floating_point()}
    if not checked:
        return
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
        manifest = json.loads(manifest_path.read_text("utf-8"))
    except FileNotFoundError:
        return "manifest.json is missing"
    except (OSError, ValueError, RecursionError):
        return "manifest.json cannot be read"
    if not isinstance(manifest, dict) or not isinstance(manifest.get("files"), dict):
        return "manifest.json has no list of files"
    if manifest.get("schema") != SCHEMA:
        return f"it has format {manifest.get('schema')}, this version reads {SCHEMA}; it was written by another version"
    found = _NAME.fullmatch(path.name)
    if found and manifest.get("step") != int(found[1]):
        return f"manifest.json says step {manifest.get('step')}, the folder {path.name}"
    if "state.json" not in manifest["files"]:
        return "manifest.json does not list state.json"
    try:
        for name, expected in manifest["files"].items():
            reason = _file_damage(path, name, expected)
            if reason:
                return reason
        return _table_damage(path, manifest)
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
    there = {
        name: {"shape": list(info.shape), "dtype": _TORCH_NAMES.get(info.dtype, info.dtype), "file": file}
        for file in manifest["files"]
        if file.endswith(".safetensors")
        for name, info in files.read_header(path / file).items()
    }
    return None if manifest.get("tensors") == there else "manifest.json tells of other tensors than its files hold"


def listed(folder: Path) -> list[Path]:
    """All folders with a checkpoint's name, newest step first; complete or not."""
    if not folder.is_dir():
        return []
    return sorted((p for p in folder.iterdir() if _NAME.fullmatch(p.name) and p.is_dir()), key=step_of, reverse=True)


def step_of(path: Path) -> int:
    """The step that a checkpoint's name says."""
    found = _NAME.fullmatch(path.name)
    return int(found[1]) if found else -1


def newest(folder: Path) -> Found:
    """The newest checkpoint that verifies. Order is by step, never by file time."""
    passed: list[tuple[Path, str]] = []
    for path in listed(folder):
        reason = damage(path)
        if reason is None:
            return Found(path, tuple(passed))
        passed.append((path, reason))
    return Found(None, tuple(passed))


def read(path: Path) -> Restored:
    """Reads a checkpoint after verifying it. Raises CheckpointError E1501 naming the file that is wrong."""
    reason = damage(path)
    if reason is not None:
        raise CheckpointError(f"{path}: {reason}; take another checkpoint", code="E1501")
    manifest = json.loads((path / "manifest.json").read_text("utf-8"))
    tensors: dict[str, Tensor] = {}
    for name in manifest["files"]:
        if name.endswith(".safetensors"):
            tensors |= files.read(path / name)
    for name, expected in manifest["tensors"].items():
        if name not in tensors or list(tensors[name].shape) != expected["shape"]:
            raise CheckpointError(
                f"{path}: {name} is not what manifest.json says; take another checkpoint", code="E1501"
            )
    values = json.loads((path / "state.json").read_text("utf-8"))
    return Restored(path, int(manifest["step"]), tensors, values)


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
            probes.reach("checkpoint.prune")
            durable.remove_tree(path)
            gone.append(path)
    return gone


def fits(restored: Restored, expected: Mapping[str, Tensor]) -> None:
    """Checks names and shapes of a checkpoint's tensors against the run's own. Raises CheckpointError E1502 with
    counts and first names."""
    missing = [name for name in expected if name not in restored.tensors and not name.startswith("scaler/")]
    wrong = [
        name for name, t in expected.items() if name in restored.tensors and restored.tensors[name].shape != t.shape
    ]
    spare = [name for name in restored.tensors if name not in expected and not name.startswith(("scaler/", "opt."))]
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
