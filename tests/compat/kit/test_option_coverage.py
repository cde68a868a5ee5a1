"""`tools/option_coverage.py`: outcomes of options, and their uses in examples."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3] / "tools"))

import option_coverage
from mezzotint.compat.kit.dialect import Dialect, FileTable, ignored, mapped, refused, row, waits

DIALECT = Dialect(
    name="example",
    about="an example",
    rows=(
        row("file", str, "run.name", "settings"),
        mapped("seed", 1, "run.seed", "seed"),
        refused("plugins", "", "no"),
    ),
    compute=lambda draft: None,
    tables=(
        FileTable("file", "job:", (ignored("train.log", 0, "no number"),), at=("jobs", 0)),
        FileTable(
            "file", "sets:", (waits("suffix", "", "caption suffix", "text"),), at=("jobs", 0, "sets"), each="sets"
        ),
    ),
)


def test_each_option_has_an_outcome_by_its_name_in_files() -> None:
    assert option_coverage.outcomes_of(DIALECT) == {
        "file": "acts", "seed": "acts", "plugins": "refused", "jobs.train.log": "no effect",
        "jobs.sets.suffix": "waits",
    }  # fmt: skip


def test_uses_are_counted_once_for_each_example_of_a_training() -> None:
    outcomes = option_coverage.outcomes_of(DIALECT)
    examples = [
        {"settings": {"jobs[0].sets[0].suffix": "a", "jobs[0].sets[1].suffix": "b", "section.seed": 3}},
        {"settings": {"seed": 4, "unheard_of": 1}, "kind": "train command"},
        {"settings": {"seed": 4}, "kind": "tool command"},
    ]
    assert sorted(option_coverage.uses_in(examples, outcomes)) == [
        ("jobs.sets.suffix", "waits"), ("section.seed", "acts"), ("seed", "acts"), ("unheard_of", "not an option"),
    ]  # fmt: skip
