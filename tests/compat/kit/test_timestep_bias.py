"""Timestep bias of the trainers that have it."""

from __future__ import annotations

import importlib

import pytest
from foreign_lines import Lines

from mezzotint import registry

WORDS = [
    "--timestep_bias_multiplier", "2", "--timestep_bias_strategy", "range", "--timestep_bias_begin", "200",
    "--timestep_bias_end", "500", "--timestep_bias_portion", "0.25",
]  # fmt: skip


THEIRS: list[Lines] = [
    lines
    for name in registry.names("dialects")
    if "timestep_bias_strategy"
    in (lines := importlib.import_module(f"dialect_cases.{name.replace('-', '_')}").LINES).rows
]


@pytest.mark.parametrize("lines", THEIRS, ids=lambda lines: lines.name)
def test_documented_timestep_bias_range_is_read(lines: Lines) -> None:
    bias = lines.recipe(*WORDS).objective.timestep_bias
    assert bias.model_dump() == {"strategy": "range", "multiplier": 2.0, "begin": 200, "end": 500, "portion": 0.25}
    assert "--timestep_bias_portion: not used with range" in lines.notes_text(*WORDS)
    assert "timestep 500 itself is not preferred" in lines.notes_text(*WORDS)
    assert "all timesteps are equally likely" in lines.notes_text("--timestep_bias_multiplier=2")
    earlier = lines.notes_text("--timestep_bias_strategy=earlier", "--timestep_bias_begin=3")
    assert "--timestep_bias_begin: not used with earlier" in earlier
    assert "timestep_bias" not in lines.notes_text("--timestep_bias_strategy=later", "--timestep_bias_portion=0.5")
