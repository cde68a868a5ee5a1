"""The check of a GPU, run without one and with a sixteenth of the width."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import check_gpu
from mezzotint.settings.reading.read import resolve_paths
from mezzotint.settings.recipe import Recipe
from mezzotint.tasks.bench.bench import Options
from mezzotint.tasks.reading.arguments import parse


def parts_of(folder: Path) -> dict[str, Any]:
    document = json.loads((folder / "gpu.json").read_text("utf-8"))
    assert document["is_dry_run"]
    return dict(document["parts"])


@pytest.mark.slow
@pytest.mark.usefixtures("unmeasured")
def test_dry_run_writes_all_checks_to_one_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert check_gpu.main(["--dry-run", f"--out={tmp_path / 'out'}"]) == 0
    parts = parts_of(tmp_path / "out")
    assert parts.keys() == check_gpu.CHECKS.keys()
    assert {name: part["ok"] for name, part in parts.items()} == {
        "losses agree with the CPU": True, "peak memory": None, "speed": None, "resuming is bit-exact": True,
    }  # fmt: skip
    losses = parts["losses agree with the CPU"]["losses"]
    assert losses["fp32"] == losses["cpu"] != losses["bf16"], "without a GPU both run on the CPU"
    assert parts["peak memory"]["estimate"] > 10**7
    assert [row["name"] for row in parts["speed"]["rows"]] == ["as written", "fast"]
    assert all(row["images_per_second"]["processed"] > 0 for row in parts["speed"]["rows"])
    [way] = parts["resuming is bit-exact"]["ways"].values()
    assert way["is_equal"]
    assert len({*way["losses"]}) == len(way["losses"]) == 4
    assert "not measured without a GPU, estimate of check" in capsys.readouterr().out


def test_failed_check_is_recorded_and_the_others_still_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(card: check_gpu.Card) -> dict[str, Any]:
        raise RuntimeError("no kernel image")

    chosen = {"broken": fail, "sound": lambda card: {"ok": True}}  # the real ones run in the slow test
    monkeypatch.setattr(check_gpu, "CHECKS", chosen)
    assert check_gpu.main(["--dry-run", f"--out={tmp_path / 'out'}"]) == 1
    parts = parts_of(tmp_path / "out")
    document = json.loads((tmp_path / "out" / "gpu.json").read_text("utf-8"))
    assert {"date", "processor", "environment"} <= document.keys()
    assert [parts[name]["ok"] for name in chosen] == [False, True]
    assert "no kernel image" in parts["broken"]["error"]
    assert "broken: FAILED (RuntimeError: no kernel image)" in capsys.readouterr().out


@pytest.fixture
def card(tmp_path: Path) -> check_gpu.Card:
    reading = parse(["sd15"], "bench")
    return check_gpu.Card(reading, resolve_paths(reading), False, tmp_path)


@pytest.mark.parametrize(("fp32", "bf16", "is_ok"), [(1.0005, 1.01, True), (1.002, 1.01, False), (1.0005, 1.03, False)])
def test_losses_that_differ_from_the_cpu_fail(
    card: check_gpu.Card, monkeypatch: pytest.MonkeyPatch, fp32: float, bf16: float, is_ok: bool
) -> None:
    def measure(recipe: Recipe, steps: int) -> Any:
        on_gpu = {"fp32": fp32, "bf16": bf16}[recipe.run.precision]
        loss = 1.0 if recipe.run.device == "cpu" else on_gpu
        return SimpleNamespace(steps=[SimpleNamespace(loss=loss)] * steps)

    monkeypatch.setattr(check_gpu, "_measure", measure)
    result = check_gpu.CHECKS["losses agree with the CPU"](card)
    assert result["ok"] is is_ok
    assert result["losses"]["cpu"] == [1.0, 1.0, 1.0]


@pytest.mark.parametrize(("share", "is_ok"), [(1.05, True), (0.8, False), (1.2, False)])
def test_peak_memory_far_from_the_estimate_fails(
    card: check_gpu.Card, monkeypatch: pytest.MonkeyPatch, share: float, is_ok: bool
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(check_gpu, "MetaModel", lambda recipe, kind: None)
    monkeypatch.setattr(check_gpu, "memory_of", lambda outline, table: SimpleNamespace(peak=10**9))
    monkeypatch.setattr(check_gpu, "_measure", lambda recipe, steps: SimpleNamespace(memory=int(share * 10**9)))
    result = check_gpu.CHECKS["peak memory"](card)
    assert result == {"ok": is_ok, "estimate": 10**9, "measured": int(share * 10**9)}


def test_speed_is_measured_as_written_and_fast(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    received: list[Options] = []

    def measured(reading: Any, of: Recipe, options: Options, *rest: Any) -> Any:
        received.append(options)
        return {"rows": []}

    monkeypatch.setattr(check_gpu, "bench", measured)
    monkeypatch.setattr(check_gpu, "CHECKS", {"speed": check_gpu.CHECKS["speed"]})
    assert check_gpu.main(["--dry-run", f"--out={tmp_path / 'out'}"]) == 0
    assert [(one.fast, one.against_stock, one.steps) for one in received] == [(True, False, 8)]


def test_machine_without_a_gpu_is_refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(SystemExit):
        check_gpu.main([])
    assert "torch finds no GPU here" in capsys.readouterr().err
