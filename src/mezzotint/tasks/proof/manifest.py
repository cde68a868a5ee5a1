"""Hashes of a run's inputs: `manifest.json` in its folder.

recipe         of recipe.yaml as it was written
data           of the whole data set, and of its samples by shard of their keys
weights        of each part of the model that the run started from, including tokenizer and schedule
environment    versions, commit, device, processes and threads, as in environment.json
determinism    the settings that decide whether the same run gives the same bits
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np

from mezzotint import durable, outside
from mezzotint.data.catalogue import catalogue as catalogues
from mezzotint.data.catalogue.catalogue import Catalogue
from mezzotint.errors import CheckpointError
from mezzotint.run_folder import RUN_SCHEMA, RunFolder, refuse_older_run
from mezzotint.settings.recipe import Recipe
from mezzotint.tasks import assemble
from mezzotint.weights.model_files import ModelFiles

FILE = "manifest.json"
_MOST_SHARDS = 4096


def write(
    folder: RunFolder, recipe: Recipe, catalogue: Catalogue, files: ModelFiles, environment: dict[str, Any]
) -> None:
    """Writes manifest.json next to the existing recipe.yaml. Raises StorageError, and WeightsError for missing model
    files."""
    run = recipe.run
    determinism = {
        "deterministic": run.deterministic, "precision": run.precision, "tf32": run.tf32, "compile": run.compile,
        "attention": recipe.model.attention, "seed": run.seed,
    }  # fmt: skip
    values = {
        "schema": RUN_SCHEMA,
        "recipe": durable.sha256(folder.recipe),
        "data": {"fingerprint": catalogue.fingerprint, "samples": len(catalogue), "shards": shards_at_start(catalogue)},
        "weights": weights(recipe, files),
        "environment": environment,
        "determinism": determinism,
    }
    durable.write_json(folder.path / FILE, values)


def read(folder: Path) -> dict[str, Any]:
    """Reads the manifest of a run folder. Raises CheckpointError E1515 if it is missing or cannot be read, E1521 for
    one of an older version."""
    refuse_older_run(folder)
    try:
        values = outside.read_json(folder / FILE, limit=outside.LISTED)
        if values["schema"] == RUN_SCHEMA and all(isinstance(values[name], dict) for name in ("data", "weights")):
            return dict(values)
        reason = f"it has format {values['schema']}, this version reads {RUN_SCHEMA}"
    except FileNotFoundError:
        if not folder.is_dir():
            raise CheckpointError(f"there is no folder {folder}; name the folder of a run", code="E1515") from None
        reason = "it does not exist; it is written when a run starts"
    except (OSError, ValueError, KeyError, TypeError) as error:
        reason = f"it cannot be read ({error})"
    raise CheckpointError(f"{folder / FILE}: {reason}; name the folder of a run", code="E1515")


def weights(recipe: Recipe, files: ModelFiles) -> dict[str, str]:
    """The fingerprint of every part of the model on disk, and of the files applied to it."""
    parts = assemble.parts_from_folder(files)
    return {part: files.fingerprint(part) for part in sorted(parts)} | assemble.identities(recipe, files, ())


def shards(catalogue: Catalogue) -> dict[str, str]:
    """Sixteen hexadecimal digits for each shard of keys: of keys, images, captions, repeats and weights. There are as
    many shards as samples, at most 4096, so a shard that differs leads to few samples."""
    num = len(catalogue)
    count = shard_count(num)
    columns = (
        catalogue.key_hash, catalogue.digest, catalogue.caption_checks(np.arange(num, dtype=np.int32)),
        catalogue.repeats, catalogue.weight,
    )  # fmt: skip
    flat = np.concatenate([np.ascontiguousarray(column).view(np.uint8).reshape(num, -1) for column in columns], axis=1)
    which = shard_of(catalogue.key_hash, count)
    order = np.lexsort((catalogue.key_hash, which))
    starts = np.flatnonzero(np.diff(which[order], prepend=-1))
    ends = [*starts[1:].tolist(), num]
    return {
        f"{int(which[order[start]]):03x}": hashlib.sha256(flat[order[start:end]].tobytes()).hexdigest()[:16]
        for start, end in zip(starts.tolist(), ends, strict=True)
    }


def shards_at_start(catalogue: Catalogue) -> dict[str, str]:
    """`shards`, for a large data set from its memo if an earlier start stored them."""
    if len(catalogue) < catalogues.MANY:
        return shards(catalogue)
    key = (RUN_SCHEMA, catalogue.fingerprint)
    if isinstance(stored := catalogue.memo.get_json("shards", key), dict):
        return stored
    computed = shards(catalogue)
    catalogue.memo.put("shards", key, json.dumps(computed).encode("ascii"), keep=1)
    return computed


def shard_count(num: int) -> int:
    """The number of shards for a number of samples."""
    return int(min(_MOST_SHARDS, 1 << max(0, num - 1).bit_length()))


def shard_of(key_hash: Any, count: int) -> Any:
    """The shard of a key, or of many, by `draws.text_key`."""
    return (key_hash % np.uint64(count)).astype(np.int64)
