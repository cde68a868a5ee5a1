"""A dialect under test: its minimal command, and expectations of its flags. `dialect_cases/` has one for each dialect;
tests/compat/test_contract.py tests them all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from mezzotint.cli import main
from mezzotint.compat.kit.dialect import Dialect, Row
from mezzotint.errors import RecipeError
from mezzotint.settings.reading.translation import Launched, Translation
from mezzotint.settings.reference import error_codes
from mezzotint.tasks.reading import foreign

ALONE = Launched()
GONE = "gone"


def flat(tree: Any, prefix: str = "") -> dict[str, Any]:
    """Settings by dotted path."""
    if not isinstance(tree, dict):
        return {prefix[:-1]: tree}
    return {path: value for key, inner in tree.items() for path, value in flat(inner, f"{prefix}{key}.").items()}


def without(table: Mapping[str, Any], *keys: str) -> dict[str, Any]:
    """A table less some of its keys."""
    return {key: value for key, value in table.items() if key not in keys}


@dataclass(frozen=True)
class Lines:
    """barest: the shortest valid command. defaults: the documented default of every flag; later: of those that only a
    later version has. settings: those of the shortest command. acts: by flag, words and the settings that they move,
    "gone" for one that is left out; beside: words in both commands. elsewhere: flags that act and have tests of
    their own. impossible: words, the flag that is named, and perhaps the code. files: files of the folder."""

    name: str
    barest: tuple[str, ...]
    defaults: Mapping[str, Any]
    settings: Mapping[str, Any]
    acts: Mapping[str, tuple[Sequence[str], Mapping[str, Any]]]
    impossible: Sequence[tuple[Any, ...]]
    later: Mapping[str, Any] = field(default_factory=dict)
    beside: Mapping[str, Sequence[str]] = field(default_factory=dict)
    elsewhere: frozenset[str] = frozenset()
    files: Mapping[str, str] = field(default_factory=dict)

    @property
    def dialect(self) -> Dialect:
        return foreign.find_dialect(self.name)

    @property
    def rows(self) -> dict[str, Row]:
        return {row.flag: row for row in self.dialect.rows}

    def write_files(self) -> None:
        for name, text in self.files.items():
            Path(name).write_text(text, "utf-8")

    def translate(self, *words: str, launched: Launched = ALONE) -> Translation:
        return self.dialect.translate([*self.barest, *words], launched)

    def recipe(self, *words: str, launched: Launched = ALONE) -> Any:
        return foreign.read_command_line(self.name, [*self.barest, *words], (), launched).recipe

    def changed(self, *words: str, launched: Launched = ALONE, beside: Sequence[str] = ()) -> dict[str, Any]:
        """The settings that differ from those without `words`; "gone" for those left out."""
        before, after = (flat(self.translate(*w, launched=launched).settings) for w in (beside, (*beside, *words)))
        gone = dict.fromkeys(before.keys() - after.keys(), GONE)
        return {path: value for path, value in after.items() if before.get(path, "absent") != value} | gone

    def notes(self, *words: str, launched: Launched = ALONE) -> list[str]:
        return [str(note) for note in self.translate(*words, launched=launched).notes]

    def notes_text(self, *words: str, launched: Launched = ALONE) -> str:
        """All notes of a command as one text."""
        return "\n".join(self.notes(*words, launched=launched))

    def refusal(self, *words: str, launched: Launched = ALONE) -> list[tuple[str, str]]:
        """(flag, code) of each problem of a command, found by the dialect or in its recipe."""
        with pytest.raises(RecipeError) as caught:
            foreign.read_command_line(self.name, [*self.barest, *words], (), launched)
        assert caught.value.exit_status == 2
        assert str(caught.value).startswith(f"the line of {self.name} has ")
        assert {problem.code for problem in caught.value.problems} <= error_codes().keys()
        return [(problem.where, problem.code) for problem in caught.value.problems]


def printed(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """The recipe that `translate` prints for a command."""
    assert main(["translate", *words]) == 0
    return capsys.readouterr().out
