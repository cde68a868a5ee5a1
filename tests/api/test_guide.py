"""The notebook that is the source of the guide to the Python API."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import mezzotint as mz

NOTEBOOK = Path(__file__).parents[2] / "docs" / "guides" / "python.ipynb"

LESS = ("data.resolution=32", "data.batch_size=2", "optim.accumulation=1", "run.tensorboard=false")
"""Settings that make the runs of the notebook shorter."""


def test_notebook_of_the_guide_runs_in_an_empty_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "notebook", "LESS": LESS}
    cells = [cell for cell in json.loads(NOTEBOOK.read_text("utf-8"))["cells"] if cell["cell_type"] == "code"]
    assert len(cells) > 8
    for number, cell in enumerate(cells):
        source = "".join(cell["source"]).replace('recipe("tiny_cpu"', 'recipe("tiny_cpu", *LESS')
        exec(compile(source, f"cell {number}", "exec"), names)
    printed = capsys.readouterr().out
    assert "E1522" in printed, "resuming without the loss function is refused"
    assert {path.name: mz.Run(path).step for path in Path("runs").iterdir()} == {
        "first": 6, "callback": 6, "loss": 4, "dataset": 4, "loop": 6,
    }  # fmt: skip
    assert sorted(path.suffix for path in mz.Run("runs/dataset").recipe.data.path.iterdir())[-1] == ".png"
