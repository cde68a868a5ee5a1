"""Digests of results that are equal on all processors: addresses of caches, schedules, names of tensors, settings
translated from command lines of other trainers. A changed digest means that caches of users are filled again, that a
resumed run has other batches, or that a checkpoint cannot be read; `tools/compare_with.py COMMIT` shows where.

The digests are of files that commands write, so they do not depend on the structure of the source. After an intended
change, `python tests/tools/test_unchanged.py` writes the record again.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

import pytest

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))

import compare_with
import compared_files
import compared_journeys
from compared_lines import LINES
from mezzotint import registry

RECORD = Path(__file__).with_name("unchanged.json")
OURS = (*compared_journeys.OURS, "run.export.single_file=true")
RUNS = {
    "sd": ("model.path=mezzotint-mini", "model.weights=files", *compared_journeys.CACHED, "data.cache.crops=2",
           "run.steps=3", "run.schedule_file=true", "run.log_samples=true"),
    "sdxl": ("model.family=sdxl", "model.path=tiny-sdxl", "data.batch_size=1", "optim.accumulation=1", "run.steps=1"),
    "latte": ("model.family=latte", "model.path=tiny-latte", "data.batch_size=1", "optim.accumulation=1",
              "objective.noise_offset=0", "run.steps=1", "run.export.single_file=false"),
}  # fmt: skip


def exists(name: str) -> bool:
    """Whether the dialect or family of a digest exists: folders of `compat` add some."""
    what, _, choice = name.partition(": ")
    kinds = {"translated": "dialects", "tensors of a checkpoint": "families", "tensors of exports": "families"}
    return what not in kinds or choice in registry.names(kinds[what])


def digest(lines: Iterable[str]) -> str:
    """Number and digest of lines in any order."""
    ordered = sorted(lines)
    return f"{len(ordered)} {hashlib.sha256(chr(10).join(ordered).encode()).hexdigest()[:16]}"


def tensor_names(folder: Path) -> str:
    """Digest of the names, types and shapes in all safetensors files below a folder."""
    paths = (path for path in folder.rglob("*.safetensors"))
    return digest(f"{name} {kind} {shape}" for path in paths for name, (kind, shape, _) in compared_files.tensors(path))


def digest_runs(folder: Path) -> dict[str, str]:
    """Digests of small runs. The run with a cache uses shipped weights, so its addresses are the same everywhere."""
    from mezzotint.cli import main

    digests = {}
    for family, words in RUNS.items():
        if family not in registry.names("families"):
            continue
        run = folder / family
        errors = io.StringIO()
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(errors):
            status = main(["train", "tiny_cpu", *OURS, *words, f"run.folder={run}"])
        assert status == 0, errors.getvalue()
        digests[f"tensors of a checkpoint: {family}"] = tensor_names(run / "checkpoints")
        digests[f"tensors of exports: {family}"] = tensor_names(run / "exports")
    schedules = sorted((folder / "sd" / "logs").glob("*batch_schedule.txt"))
    visits = (f"{path.name} {n} {line}" for path in schedules for n, line in enumerate(path.read_text().splitlines()))
    digests["schedules"] = digest(line.partition("path:")[0] + Path(line).name for line in visits)
    texts = [path.read_text() for path in (folder / "sd" / "logs").glob("samples.*")]
    logged = [json.loads(line) for text in texts for line in text.splitlines()]
    digests["samples and timesteps of steps"] = digest(f"{s['step']} {s['keys']} {s['timesteps']}" for s in logged)
    for kind in ("latents", "text"):
        shards = sorted((folder / "cache" / kind).rglob("*.index"))
        digests[f"cache addresses: {kind}"] = digest(
            f"{shard.parent.relative_to(folder)} {address} {len(row)}"
            for shard in shards
            for address, row in compared_files.cache_rows(shard)
        )
    return digests


def digest_lines() -> dict[str, str]:
    """Digests of translated settings, by the last key of their path: a section may move, a value may not change."""
    from mezzotint.cli import main

    settings: dict[str, list[str]] = {}
    for number, step in enumerate(compared_journeys.translations(LINES.splitlines())):
        if step.words[2] not in registry.names("dialects"):
            continue
        out, errors = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
            status = main(list(step.words))
        assert status == 0, errors.getvalue()
        pairs = compared_files.leaves(compared_files.parse(out.getvalue(), ".yaml"))
        settings.setdefault(step.words[2], []).extend(
            f"{number} {compare_with.last_key(path)} {value}" for path, value in pairs
        )
    return {f"translated: {dialect}": digest(lines) for dialect, lines in settings.items()}


@pytest.mark.slow
def test_digests_of_exact_results_are_unchanged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    recorded = {name: value for name, value in json.loads(RECORD.read_text()).items() if exists(name)}
    assert digest_lines() | digest_runs(tmp_path) == recorded


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        os.chdir(name)
        RECORD.write_text(json.dumps(digest_lines() | digest_runs(Path(name)), indent=1) + "\n")
