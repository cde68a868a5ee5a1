"""`make bench-check`: what memory, saves, a start and the data path cost, each beside its goal. For a quiet machine.

    python tools/bench_check.py                    everything; some minutes, and 2 GB of memory and disk
    python tools/bench_check.py --only start data  some of it

Each module of `bench_checks/` has `rows()`: (mark, goal, figure), taken in turn with what they are compared with.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

Row = tuple[str, str, str]

FOLDER = Path(__file__).parent / "bench_checks"


def names() -> list[str]:
    """The modules of `bench_checks/`, as they are written on a line."""
    return sorted(path.stem.replace("_", "-") for path in FOLDER.glob("[!_]*.py"))


def rows_of(name: str) -> list[Row]:
    """The marks of a module, measured now."""
    measure: Callable[[], list[Row]] = importlib.import_module(f"bench_checks.{name.replace('-', '_')}").rows
    return measure()


def table(parts: Iterable[tuple[str, Sequence[Row]]]) -> str:
    """Marks in Markdown, those of each part below its name."""
    lines = [("mark", "goal", "figure"), ("---", "---", "---")]
    for name, rows in parts:
        lines += [(f"**{name}**", "", ""), *rows]
    widths = [max(len(line[i]) for line in lines) for i in range(3)]
    padded = ([cell.ljust(width) for cell, width in zip(line, widths, strict=True)] for line in lines)
    return "\n".join(f"| {' | '.join(cells)} |" for cells in padded)


def main(words: Sequence[str] | None = None) -> int:
    """The exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=names(), default=names(), metavar="NAME", help=", ".join(names()))
    chosen = parser.parse_args(words)
    parts = []
    for name in chosen.only:
        print(f"measuring {name} …", file=sys.stderr)
        parts.append((name, rows_of(name)))
    print(table(parts))
    return 0


if __name__ == "__main__":
    sys.exit(main())
