"""Readers of run folders: losses, checkpoints and history."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mezzotint import outside
from mezzotint.training.checkpoints import state


def logged(folder: Path | str, tag: str = "loss") -> list[float]:
    """What metrics.jsonl says of a tag, by step."""
    return [line[tag] for line in outside.read_lines(Path(folder) / "metrics.jsonl") if tag in line]


def tensors_of(folder: Path) -> dict[str, Tensor]:
    """Those of the newest checkpoint."""
    newest = state.newest_valid(folder / "checkpoints").path
    assert newest is not None
    return dict(state.read(newest).tensors)


def assert_alike(mine: dict[str, Tensor], other: dict[str, Tensor]) -> None:
    """Up to rounding, which Adam's first steps enlarge where a gradient is next to nothing."""
    assert mine.keys() == other.keys()
    for name, tensor in other.items():
        apart = torch.linalg.vector_norm((mine[name] - tensor).double())
        assert apart <= 2e-3 * torch.linalg.vector_norm(tensor.double()) + 1e-9, name


def run_at(folder: Path, stamp: str, *, step: int | None = 3, name: str = "fox") -> Path:
    """A run folder as it lies there after its start, with a checkpoint of a step, or none."""
    run = folder / f"{name}-{stamp}"
    (run / "checkpoints").mkdir(parents=True)
    (run / "recipe.yaml").write_text("schema: 1\nmodel: {path: base}\n")
    if step is not None:
        (run / "checkpoints" / f"step-{step:08}").mkdir()
        (run / "checkpoints" / f"step-{step:08}" / "manifest.json").write_text("{}")
    return run


def bench_results(out: Path) -> dict[str, Any]:
    """What `bench` has written into a folder."""
    results: dict[str, Any] = json.loads((out / "bench.json").read_text("utf-8"))
    return results


def report_of(folder: Path) -> dict[str, dict[str, Any]]:
    """What a run says of its samples, by their keys."""
    return {line["id"]: line for line in outside.read_lines(folder / "data_report.jsonl")}
