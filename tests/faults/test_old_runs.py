"""Runs that earlier versions began, one of each form that a checkpoint has had, are gone on with: to the same steps,
samples, draws and rates, and to the losses that their own code came to, but for rounding. `tools/old_runs.py` made
them; what lies in `old/` is never written anew."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from forked import import_all

from mezzotint import outside
from mezzotint.cli import main
from mezzotint.run_folder import RunFolder
from mezzotint.training.checkpoints import state

OLD = Path(__file__).parent / "old"
RUNS = {
    "first": "the first that trained; callbacks were called observers",
    "observers": "the last of those, with what a checkpoint had learnt by then",
    "rows": "schema 2: two processes that shared the weights",
    "before-trust": "in bf16; before runs had manifests, and temporary names one rule",
    "before-storm": "with held-out pictures and the best checkpoint's second name",
}
LATER = ("observers", "before-trust", "before-storm")
"""Those that the slow tests go on with."""
ROUNDING = {"before-trust": 1e-2}
"""How far losses may lie apart, relatively: in bf16 a unit of the last place is 0.4 %. In float32 it is 1e-7, of which
a sum over a network and three steps of an optimizer make a thousand at most."""


def begun(name: str, place: Path) -> tuple[Path, list[str]]:
    """A copy of an old run, and the line that goes on with it here."""
    for part in ("model", "pictures"):
        shutil.copytree(OLD / part, place / part)
    run = shutil.copytree(OLD / name / "run", place / "run")
    here = {"model.path": place / "model", "data.path": place / "pictures", "data.cache.path": place / "cache"}
    here |= {"run.allow_change": "[model]"}  # of random weights, another torch than theirs counts as another model
    return run, ["train", str(run), *(f"{path}={value}" for path, value in here.items())]


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def behind(name: str, run: Path) -> dict[str, Any]:
    """Holds the steps behind the checkpoint against those of the code that wrote it. Returns the event of going on."""
    resumed = next(event for event in RunFolder(run).events() if event["event"] == "resumed")
    # of random weights another torch draws others, and the run has said so
    is_same = not any(change.endswith("have changed") for change in resumed["changes"])
    rounding = ROUNDING.get(name, 1e-4) if is_same else 0.05
    before = [line for line in lines(OLD / name / "behind" / "metrics.jsonl") if "loss" in line]
    now = [line for line in lines(run / "metrics.jsonl") if line["step"] > 3 and "loss" in line]
    exact = ["step", "epoch", "samples", "applied"] + ["samples_digest"] * (name != "rows")  # of the first process
    assert [[line[key] for key in exact] for line in now] == [[line[key] for key in exact] for line in before]
    rates = [[value for key, value in line.items() if key.startswith("lr/")] for line in before]
    assert [[value for key, value in line.items() if key.startswith("lr/")] for line in now] == rates
    for key in ("loss", "norm"):
        assert [line[key] for line in now] == pytest.approx([line[key] for line in before], rel=rounding)
    drawn, draws = samples(run / "logs", 3), samples(OLD / name / "behind", 3)
    assert [one[:2] for one in drawn] == [one[:2] for one in draws], "which samples, and which timesteps"
    assert [one[2] for one in drawn] == pytest.approx([one[2] for one in draws], rel=10 * rounding)
    return resumed


def samples(folder: Path, after: int) -> list[tuple[int, str, float, float]]:
    """Step, sample, timestep and loss of all processes, in an order that none of them decides."""
    seen = []
    for path in folder.glob("samples.rank*.jsonl"):
        for line in lines(path):
            each = zip(line["keys"], line["timesteps"], line["losses"], strict=True)
            seen += [(line["step"], key, step, loss) for key, step, loss in each if line["step"] > after]
    return [((step, key), at, loss) for step, key, at, loss in sorted(seen)]


@pytest.mark.faults
@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] * (name in LATER)) for name in RUNS])
def test_an_old_run_goes_on(name: str, tmp_path: Path, capsys: Any) -> None:
    import_all()
    run, line = begun(name, tmp_path)
    assert main([*line, "run.runtime=auto"]) == 0, capsys.readouterr().err
    assert state.newest(run / "checkpoints").path == run / "checkpoints" / "step-00000006"
    resumed = behind(name, run)
    assert resumed["step"] == 3
    if name == "rows":
        assert "world size: 2 → 1" in resumed["changes"]


@pytest.mark.faults
def test_another_version_in_the_middle_of_a_run_is_written_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    import_all()
    run, line = begun("before-storm", tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(torch, "__version__", "99.1")
        assert main([*line, "run.allow_change=[]"]) == 2, "weights that another torch has drawn"
        assert "the frozen vae is not the one that the checkpoint was trained with" in capsys.readouterr().err
        assert main(line) == 0
    (resumed,) = [event for event in RunFolder(run).events() if event["event"] == "resumed"]
    assert any(change.startswith("torch: ") and change.endswith(" → 99.1") for change in resumed["changes"])
    assert outside.read_json(run / "environment.json")["packages"]["torch"]


@pytest.mark.faults
def test_a_checkpoint_of_a_newer_form_is_refused_by_name(tmp_path: Path, capsys: Any) -> None:
    run, line = begun("before-storm", tmp_path)
    manifest = run / "checkpoints" / "step-00000003" / "manifest.json"
    manifest.write_text(json.dumps(outside.read_json(manifest) | {"schema": 3}))
    assert main(line) == 2
    said = capsys.readouterr().err
    assert "step-00000003" in said
    assert "it has format 3, this version reads 1 and 2; it was written by another version" in said
