"""`bench --gpu`, at a sixteenth of the width and without a GPU."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from mezzotint.cli import main
from mezzotint.tasks.bench import _gpu


def parts_of(folder: Path) -> dict[str, Any]:
    document = json.loads((folder / "gpu.json").read_text("utf-8"))
    assert document["is_dry_run"]
    return dict(document["parts"])


@pytest.mark.slow
def test_everything_is_looked_at_and_written_into_one_file(tmp_path: Path) -> None:
    assert main(["bench", "--gpu", "--dry-run", f"--out={tmp_path / 'out'}"]) == 0
    parts = parts_of(tmp_path / "out")
    assert parts.keys() == _gpu.PARTS.keys()
    right = ("parity with the CPU", "bf16", "fused update", "average on a stream of its own", "going on", "compiled")
    assert [parts[name]["ok"] for name in right] == [True] * len(right)
    assert parts["compiled"]["graphs"] > parts["compiled"]["graphs_later"] == 0
    assert parts["memory"]["counted"] > 10**7
    assert parts["speed"]["rows"][0]["images_per_second"]["processed"] > 0
    assert "left_out" in parts["CUDA graphs"]


def test_what_fails_is_written_down_and_the_rest_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def breaks(card: _gpu.Card) -> dict[str, Any]:
        raise RuntimeError("no kernel image")

    chosen = {"broken": breaks, "fused update": _gpu._fused}  # the others are looked at in the slow test
    monkeypatch.setattr(_gpu, "PARTS", chosen)
    assert main(["bench", "--gpu", "--dry-run", f"--out={tmp_path / 'out'}"]) == 1
    parts = parts_of(tmp_path / "out")
    assert [parts[name]["ok"] for name in chosen] == [False, True]
    assert "no kernel image" in parts["broken"]["error"]
    assert "broken: NOT right (RuntimeError: no kernel image)" in capsys.readouterr().out


def test_a_gpu_that_is_not_there_is_told(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert main(["bench", "--gpu"]) == 2
    assert "error[E1861]" in capsys.readouterr().err
