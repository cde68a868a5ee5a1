"""A checkpoint that several processes write together, each its own rows; one transaction all the same.

The first process names the place aside, each writes its files there and tells what it wrote, the first adds state and
manifest and gives the folder its name. When one of them fails, nothing gets a name and all hear why.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from mezzotint import durable, fault_injection
from mezzotint.errors import Diverged, MezzotintError, StorageError
from mezzotint.runtimes.base import Runtime
from mezzotint.training import sharding, state


def write(
    folder: Path,
    runtime: Runtime,
    *,
    step: int,
    tensors: Mapping[str, Tensor],
    values: Mapping[str, Any],
    recipe_digest: str,
) -> Path:
    """As `state.write`, by all processes together; returns the checkpoint's path on each. tensors: what this process
    holds; what is not shared is written by the first.

    Raises, on every process, the Diverged or StorageError that any of them has met.
    """
    final = folder / state.name_of(step)
    fault_injection.reach("checkpoint.begin")
    aside = Path(runtime.share(str(state.aside_of(folder, step))))
    header = runtime.gather(json.dumps(_attempt(lambda: _write_mine(aside, final, runtime, tensors))))
    answers = [json.loads(answer) for answer in header]
    failed = next((answer for answer in answers if "error" in answer), None)
    if failed is None:
        outcome = {}
        if runtime.is_first:
            manifest = {
                "schema": state.SCHEMA_OF_ROWS,
                "step": step,
                "recipe": recipe_digest,
                "files": {name: file for answer in answers for name, file in answer["files"].items()},
                "tensors": sharding.joined([answer["tensors"] for answer in answers]),
            }
            outcome = _attempt(lambda: _complete(aside, final, manifest, values))
        outcome = json.loads(runtime.share(json.dumps(outcome)))
        failed = outcome if "error" in outcome else None
    if failed is not None:
        if runtime.is_first and aside.exists():
            durable.remove_tree(aside)
        kind = Diverged if failed["kind"] == "Diverged" else StorageError
        raise kind(failed["error"], code=failed["code"])
    return final


def _write_mine(aside: Path, final: Path, runtime: Runtime, tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    mine = {
        name: tensor
        for name, tensor in tensors.items()
        if (runtime.is_first if (share := sharding.share_of(name, runtime.shares)) is None else _counts(runtime, share))
    }
    state.refuse_non_finite(mine)
    ending = f"-{runtime.rank + 1:05d}-of-{runtime.world_size:05d}"
    with durable.storage_errors(final, needed=sum(t.numel() * t.element_size() for t in mine.values())):
        aside.mkdir(parents=True, exist_ok=True)
        listing = state.write_files(aside, mine, ending)
    table = {
        name: sharding.table_entry(tensor, state.file_of(name, ending), sharding.share_of(name, runtime.shares))
        for name, tensor in mine.items()
    }
    return {"files": listing, "tensors": table}


def _counts(runtime: Runtime, share: sharding.Share) -> bool:
    """Whether this process writes its rows of a tensor: there are some, and no other writes the same."""
    is_empty_tensor = 0 in share.shape and runtime.is_first
    return is_empty_tensor or (runtime.is_writer and share.start < share.stop)


def _complete(aside: Path, final: Path, manifest: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    with durable.storage_errors(final):
        state.complete(aside, final, manifest, values)
    return {}


def _attempt(work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What the work gives, or what it met, as JSON can say it."""
    try:
        return work()
    except MezzotintError as error:
        return {"error": error.message, "code": error.code, "kind": type(error).__name__}
