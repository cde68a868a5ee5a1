"""Training from another program's weights: interrupted and resumed as any run."""

from __future__ import annotations

from typing import Any

import pytest

from mezzotint import outside


@pytest.mark.slow
def test_run_from_foreign_weights_resumes_bit_exactly(world: Any, capsys: pytest.CaptureFixture[str]) -> None:
    settings = {"run__start__step": 2, "run__export__optimizer_file": "mindone"}
    settings |= {"optim__optimizer__kind": "adam-weight-decay", "data__captions__dropped": "zeros"}
    assert world.train("whole", run__steps=6, **settings) == 0
    assert "\ncontinuing after step 2 of 6; Ctrl-C saves and stops" in capsys.readouterr().out
    assert world.train("parts", run__steps=4, **settings) == 0
    assert world.train("parts", run__steps=6, **settings) == 0
    assert world.end("parts") == world.end("whole")
    lines = [line for line in outside.read_lines(world.root / "whole" / "metrics.jsonl") if "loss" in line]
    assert [line["step"] for line in lines] == [3, 4, 5, 6]
    files = [(world.root / name / "optimizer.ckpt").read_bytes() for name in ("whole", "parts")]
    assert files[0] == files[1]
