"""Counts what becomes of the options of other trainers, weighted by their use in published settings.

    python tools/option_coverage.py                           the counts of all dialects
    python tools/option_coverage.py --examples=FILE --write   also their uses; writes docs/reference/option-coverage.md

FILE is a JSON list of examples: `trainer`, and `settings` by key, with indices of lists in brackets. Each example that
has an option is one use of it.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from mezzotint import registry
from mezzotint.compat.kit.dialect import Dialect
from mezzotint.tasks.reading import foreign

PAGE = Path(__file__).resolve().parent.parent / "docs" / "reference" / "option-coverage.md"
OUTCOMES = {
    "acts": ("mapped", "computed"),
    "no effect": ("without effect",),
    "refused": ("refused",),
    "waits": ("waits",),
}
HEAD = """# What becomes of other trainers' options

Written by `tools/option_coverage.py`. *Acts*: it sets something here. *No effect*: it changes no number here, for a
reason that its row gives. *Refused*: with what to write instead. *Waits*: for a feature that Mezzotint does not have
yet; its row names it. In brackets: uses in published settings and command lines of that trainer, one for each example
that has the option; examples of models that Mezzotint does not have are included, keys of data set files are not.

"""


def outcomes_of(dialect: Dialect) -> dict[str, str]:
    """The outcome of each option by its name; of keys of a file with their sections."""
    named = {row.flag: row.outcome for row in dialect.rows}
    for table in dialect.tables:
        section = ".".join(str(key) for key in table.at if isinstance(key, str))
        named |= {".".join(filter(None, (section, row.flag))): row.outcome for row in table.rows}
    words = {outcome: word for word, some in OUTCOMES.items() for outcome in some}
    return {name: words[outcome] for name, outcome in named.items()}


def uses_in(examples: Sequence[Mapping[str, Any]], outcomes: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Each use of an option in settings and commands of trainings: its name and outcome; "not an option" for the name
    of none, as of other scripts."""
    for example in examples:
        if example.get("kind") not in (None, "train command"):
            continue
        keys = {re.sub(r"\[\d+\]", "", key) for key in example["settings"]}
        for key in sorted(keys):
            name = next((n for n in (key, key.rpartition(".")[2]) if n in outcomes), "")
            yield key, outcomes[name] if name else "not an option"


def table(examples: Sequence[Mapping[str, Any]]) -> list[str]:
    """The lines of the table, in Markdown."""
    columns = (*OUTCOMES, "not an option") if examples else tuple(OUTCOMES)
    lines = ["| trainer | options | " + " | ".join(columns) + " |", "|---|" + "---:|" * (1 + len(columns))]
    for name in registry.names("dialects"):
        outcomes = outcomes_of(foreign.find_dialect(name))
        counts = Counter(outcomes.values())
        used = Counter(outcome for _, outcome in uses_in([e for e in examples if e["trainer"] == name], outcomes))
        total = sum(used.values())
        shares = {column: f" ({used[column]:,}, {used[column] / total:.0%})" if total else "" for column in columns}
        cells = [f"{counts[column]:,}{shares[column]}" for column in columns]
        lines.append(f"| {name} | {len(outcomes):,} | " + " | ".join(cells) + " |")
    return lines


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--examples", type=Path, help="published settings; without it only options are counted")
    parser.add_argument("--write", action="store_true", help=f"write {PAGE.name}")
    line = parser.parse_args(arguments)
    lines = table(json.loads(line.examples.read_text("utf-8")) if line.examples else [])
    print("\n".join(lines))
    if line.write:
        PAGE.write_text(HEAD + "\n".join(lines) + "\n", "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
