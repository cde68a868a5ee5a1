"""`mezzotint migrate`: names and values of earlier commits are rewritten in place, and nothing else changes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from mezzotint.cli import main
from mezzotint.errors import RecipeError
from mezzotint.settings import renamed
from mezzotint.settings.reading.read import read_text
from mezzotint.tasks.migrate import migrate

OLD = """schema: 1  # a recipe of an earlier commit
run:
  half: "products"   # half
  precision: bf16
  recompute: {enabled: true, exempt: 2}
  export: {trained_file: none}
  spikes: null
data:
  on_broken: weight-0
  verify: use
optim:
  part_schedule: {denoiser: {kind: cosine, beyond: wave}}
"""
NEW = """schema: 1  # a recipe of an earlier commit
run:
  half_precision: matmuls   # half
  precision: bf16
  gradient_checkpointing: {enabled: true, skip_first: 2}
  export: {trained_file: null}
  spike_factor: null
data:
  on_corrupt: zero_weight
  verify: on_first_use
optim:
  part_schedule: {denoiser: {kind: cosine, after_decay: cosine}}
"""


def test_migrate_changes_only_names_and_values(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(OLD)
    assert main(["migrate", str(path), "--dry-run"]) == 0
    assert path.read_text() == OLD
    shown = capsys.readouterr().out
    assert f"{path}:3: run.half is run.half_precision\n" in shown
    assert f"{path}:9: data.on_corrupt: 'weight-0' is 'zero_weight'\n" in shown
    assert main(["migrate", str(path)]) == 0
    assert path.read_text() == NEW
    read_text(NEW)
    assert main(["migrate", str(path)]) == 0
    assert capsys.readouterr().out.endswith(f"{path}: nothing to rename\n")


def test_migrate_rewrites_every_renamed_setting() -> None:
    for old, new in renamed.settings().items():
        *before, name = old.split(".")
        tree: Any = f"{name}: null"
        for section in reversed(before):
            tree = f"{section}: {{{tree}}}"
        value: Any = yaml.safe_load(migrate(tree + "\n"))
        for section in new.split("."):
            value = value[section]
        assert value is None


def test_old_and_new_name_together_are_refused() -> None:
    with pytest.raises(RecipeError, match=r"line 2: run\.half was renamed to run\.half_precision"):
        migrate("run:\n  half: most\n  half_precision: all\n")


def test_migrate_refuses_other_files_and_keeps_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "broken.yaml"
    path.write_text("run: {half: [")
    assert main(["migrate", str(path)]) == 2
    assert "this is not YAML" in capsys.readouterr().err
    assert path.read_text() == "run: {half: ["
