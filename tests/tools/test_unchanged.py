"""Digests of what no processor changes: addresses of caches, schedules, names of tensors, settings that lines of other
trainers amount to. A digest that differs means that users' caches are worked out anew, that a run goes on with other
batches, or that a checkpoint cannot be read; `tools/compare_with.py COMMIT` shows where.

What is digested is what commands leave on disk, so nothing here has to know where the code lies. After a change that is
meant, `python tests/tools/test_unchanged.py` writes the record anew.
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


def is_there(name: str) -> bool:
    """Whether a digest is of something that is here: folders of `compat` bring dialects and families."""
    what, _, choice = name.partition(": ")
    kinds = {"translated": "dialects", "tensors of a checkpoint": "families", "tensors of exports": "families"}
    return what not in kinds or choice in registry.names(kinds[what])


def digest(lines: Iterable[str]) -> str:
    """Of lines in any order, with how many they are: to the eye, none is a digest of nothing."""
    ordered = sorted(lines)
    return f"{len(ordered)} {hashlib.sha256(chr(10).join(ordered).encode()).hexdigest()[:16]}"


def tensor_names(folder: Path) -> str:
    """Of every safetensors file below a folder, whatever it is called: names, types and shapes."""
    paths = (path for path in folder.rglob("*.safetensors"))
    return digest(f"{name} {kind} {shape}" for path in paths for name, (kind, shape, _) in compared_files.tensors(path))


def of_runs(folder: Path) -> dict[str, str]:
    """Small runs in a folder. Of the cached one the weights are files that ship, so that addresses are everybody's."""
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


def of_lines() -> dict[str, str]:
    """Settings by the last key of their path: a section may move, what is asked for may not."""
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
    recorded = {name: value for name, value in json.loads(RECORD.read_text()).items() if is_there(name)}
    assert of_lines() | of_runs(tmp_path) == recorded


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        os.chdir(name)
        RECORD.write_text(json.dumps(of_lines() | of_runs(Path(name)), indent=1) + "\n")
