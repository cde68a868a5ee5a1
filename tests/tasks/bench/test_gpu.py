"""`bench --gpu`, at a sixteenth of the width and without a GPU."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from mezzotint.cli import main
from mezzotint.recipe.base import with_values
from mezzotint.recipe.reading.read import located
from mezzotint.recipe.recipe import Recipe
from mezzotint.tasks.bench import _gpu, bench
from mezzotint.tasks.reading.arguments import parse


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
    assert [row["name"] for row in parts["speed"]["rows"]] == ["as written", "fast", "stock"]
    assert all(row["images_per_second"]["processed"] > 0 for row in parts["speed"]["rows"])
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
    document = json.loads((tmp_path / "out" / "gpu.json").read_text("utf-8"))
    assert document["command"] == ["mezzotint", "bench", "--gpu", "--dry-run", "--out=…/out"]
    assert {"date", "processor", "environment"} <= document.keys()
    assert [parts[name]["ok"] for name in chosen] == [False, True]
    assert "no kernel image" in parts["broken"]["error"]
    assert "broken: NOT right (RuntimeError: no kernel image)" in capsys.readouterr().out


def a_card(folder: Path, steps_asked: list[int], *, is_small: bool = False) -> _gpu.Card:
    def measured(recipe: Recipe, steps: int) -> list[dict[str, Any]]:
        steps_asked.append(steps)
        return []

    return _gpu.Card(located(parse(["sd15"], "bench")), is_small, folder, measured)


def test_what_would_begin_after_the_limit_is_left_out_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now, written, lines = [1000.0], list[dict[str, Any]](), list[str]()

    def takes(seconds: float) -> Any:
        def part(card: _gpu.Card) -> dict[str, Any]:
            now[0] += seconds
            return {"ok": True}

        return part

    parts = {"first": takes(_gpu.LIMIT), "at the limit": takes(1.0), "later": takes(1.0), "last": takes(1.0)}
    monkeypatch.setattr(_gpu, "PARTS", parts)

    def write(known: dict[str, Any]) -> None:
        written.append(json.loads(json.dumps(known)))

    document = _gpu.look(a_card(tmp_path, []), {}, lines.append, write, lambda: now[0])
    assert {name: part["ok"] for name, part in document["parts"].items()} == {
        "first": True, "at the limit": True, "later": None, "last": None,
    }  # fmt: skip
    assert [document["parts"][name]["left_out"] for name in ("later", "last")] == ["the time was over"] * 2
    assert document["parts"]["first"]["seconds"] == _gpu.LIMIT
    assert written[-1] == document, "the file names what was left out"
    assert not any(line.startswith(("later", "last")) for line in lines)
    assert _gpu.LIMIT + _gpu.SHARE < 30 * 60


def test_a_slow_card_takes_fewer_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    card = a_card(tmp_path, asked)
    for seconds in (0.01, 4.0, 1000.0):
        monkeypatch.setattr(_gpu, "_seconds_a_step", lambda recipe, seconds=seconds: seconds)
        _gpu._speed(card)
    assert asked == [65, int(_gpu.SHARE / 3 / 4.0), _gpu._FEWEST]
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(_gpu, "_seconds_a_step", lambda recipe: 10.0)
    _gpu._graphs(card)
    assert asked[-1] == int(_gpu.SHARE / 10.0)


def test_the_dry_run_measures_every_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bench.Options] = []

    def measured(reading: Any, of: Recipe, options: bench.Options, *rest: Any) -> Any:
        asked.append(options)
        return {"rows": []}, []

    def graphs(card: _gpu.Card) -> dict[str, Any]:
        return {"ok": None, "rows": card.measured(with_values(card.recipe, {"run.kernels.graphs": True}), 3)}

    monkeypatch.setattr(bench, "bench", measured)
    monkeypatch.setattr(_gpu, "_seconds_a_step", lambda recipe: 0.1)
    monkeypatch.setattr(_gpu, "PARTS", {"speed": _gpu._speed, "graphs": graphs})
    assert main(["bench", "--gpu", "--dry-run", f"--out={tmp_path / 'out'}"]) == 0
    assert [(one.fast, one.against, one.steps) for one in asked] == [(True, "stock", 8), (False, "", 3)]


def test_a_gpu_that_is_not_there_is_told(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert main(["bench", "--gpu"]) == 2
    assert "error[E1861]" in capsys.readouterr().err
