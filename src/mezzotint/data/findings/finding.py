"""A finding, as a value and as a note."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Literal

Status = Literal["mend", "look", "know"]
"""`mend`: something is lost or learned wrongly. `look`: possibly unintended. `know`: a fact; nothing to do."""

ORDER: tuple[Status, ...] = ("mend", "look", "know")
MOST_EXAMPLES = 1000
_SHOWN = 3


@dataclass(frozen=True, slots=True)
class Example:
    """An example of a finding. text: names first. samples: (set, row) of its samples; the set "" is the data set,
    others are those of `data.holdout.path`."""

    text: str
    samples: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Finding:
    """name: stable, for scripts. count: the number in the sentence. advice: what to do. table: the first row names
    the columns."""

    name: str
    status: Status
    count: int
    sentence: str
    advice: str
    examples: tuple[Example, ...] = ()
    table: tuple[tuple[str, ...], ...] = ()


def in_order(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """The worst first."""
    return tuple(sorted(findings, key=lambda finding: ORDER.index(finding.status)))


def limit_examples(examples: Iterable[Example]) -> tuple[Example, ...]:
    """The first `MOST_EXAMPLES` examples."""
    return tuple(islice(examples, MOST_EXAMPLES))


def examples_of(rows: Sequence[int], texts: Iterable[str]) -> tuple[Example, ...]:
    """An example for each row of the data set, with its text."""
    return limit_examples(Example(text, (("", row),)) for row, text in zip(rows, texts, strict=False))


def as_notes(findings: Iterable[Finding]) -> list[str]:
    """A sentence for each finding: the finding, the first examples, what to do."""
    return [_note(finding) for finding in findings]


def _note(finding: Finding) -> str:
    shown = ", ".join(example.text for example in finding.examples[:_SHOWN])
    total = finding.count if len(finding.examples) == MOST_EXAMPLES else len(finding.examples)
    more = f" and {total - _SHOWN:,} more" if total > _SHOWN else ""
    return f"{finding.sentence}{': ' if shown else ''}{shown}{more}; {finding.advice}"


def name_first(names: Sequence[str]) -> str:
    """The first names, and how many more there are."""
    more = f" and {len(names) - _SHOWN:,} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more
