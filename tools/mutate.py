"""Breaks places of the source, drawn by a seed, one after the other, and reports which test fails for each.

    python tools/mutate.py --seed=1 --count=100 --out=mutants.tsv

Each place is broken in this checkout, whose source must be as committed, and restored afterwards. Tests run in three
stages, until one fails: the files that import the broken module, the default tests, the slow ones. A broken place that
makes tests hang counts as found. `--only=3,17` repeats some, for example with the tests of another commit.
"""

from __future__ import annotations

import argparse
import ast
import copy
import random
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "mezzotint"
SWAPS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.And: ast.Or, ast.Or: ast.And,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.FloorDiv: ast.Mult, ast.Div: ast.Mult,
}  # fmt: skip
"""Operators, and what they are replaced by."""


@dataclass(frozen=True, slots=True)
class Place:
    """A place in a file. node: its position in `ast.walk` of the file."""

    path: Path
    node: int
    line: int
    change: str


def places(path: Path) -> Iterator[Place]:
    """The places of a file that can be broken: operators, conditions, whole numbers, calls as statements."""
    tree = ast.parse(path.read_text("utf-8"))
    inside = {id(n) for f in ast.walk(tree) if isinstance(f, ast.FunctionDef) for b in f.body for n in ast.walk(b)}
    for number, node in enumerate(ast.walk(tree)):
        if id(node) in inside and (change := _change(node)):
            yield Place(path, number, getattr(node, "lineno", 0), change)


def _change(node: ast.AST) -> str:
    match node:
        case ast.Compare(ops=[op]) | ast.BinOp(op=op) | ast.BoolOp(op=op) if type(op) in SWAPS:
            return f"{type(op).__name__} → {SWAPS[type(op)].__name__}"
        case ast.If() | ast.IfExp():
            return "condition negated"
        case ast.Constant(value=int(value)) if not isinstance(value, bool):
            return f"{value} → {value + 1}"
        case ast.Expr(value=ast.Call()):
            return "call removed"
    return ""


def broken(place: Place) -> str:
    """The text of the file with this place broken; comments and layout are lost."""
    tree = ast.parse(place.path.read_text("utf-8"))
    node = list(ast.walk(tree))[place.node]
    match node:
        case ast.Compare():
            node.ops = [SWAPS[type(node.ops[0])]()]  # type: ignore[list-item]
        case ast.BinOp() | ast.BoolOp():
            node.op = SWAPS[type(node.op)]()  # type: ignore[assignment]
        case ast.If() | ast.IfExp():
            node.test = ast.UnaryOp(ast.Not(), copy.deepcopy(node.test))
        case ast.Constant():
            assert isinstance(node.value, int)
            node.value += 1
        case ast.Expr():
            node.value = ast.Constant(None)
    return ast.unparse(ast.fix_missing_locations(tree))


def importers(path: Path) -> list[str]:
    """The test files that import a module, or a name of its package with the module's name."""
    package, name = path.relative_to(SOURCE).parent.parts, path.stem
    dotted = re.escape(".".join(("mezzotint", *package)))
    pattern = rf"from {dotted}(\.{name} import|( import .*\b{name}\b))|import {dotted}\.{name}\b|{dotted}\.{name}\b"
    files = sorted((ROOT / "tests").rglob("test_*.py"))
    return [str(file.relative_to(ROOT)) for file in files if re.search(pattern, file.read_text("utf-8"))]


def failing(words: Sequence[str], limit: float) -> str | None:
    """The first test that fails, or None."""
    line = [sys.executable, "-m", "pytest", "-x", "-q", "--no-header", "-p", "no:cacheprovider", *words]
    try:
        done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, timeout=limit)
    except subprocess.TimeoutExpired:
        return "(tests hang)"
    if done.returncode in (0, 5):
        return None
    match = re.search(r"^(?:FAILED|ERROR) (\S+)", done.stdout, flags=re.MULTILINE)
    return match[1] if match else "(tests cannot be collected)"


def find(place: Place) -> tuple[str, str]:
    """Stage and test that finds a broken place; empty if none does."""
    files = importers(place.path)
    two = ["-n", "2", "--dist", "loadfile"]
    stages = [("importers", [*files, "--timeout=120"], 300.0)] if files else []
    stages += [("default", two, 1200.0), ("slow", [*two, "-m", "slow and not exhaustive"], 3600.0)]
    for stage, words, limit in stages:
        if test := failing(words, limit):
            return stage, test
    return "", ""


def main(words: Sequence[str] | None = None) -> int:
    """The exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--only", type=lambda text: {int(n) for n in text.split(",")}, help="numbers of the table")
    parser.add_argument("--out", type=Path, required=True, help="the table, written line by line")
    line = parser.parse_args(words)
    if subprocess.run(["git", "diff", "--quiet", "--", "src"], cwd=ROOT).returncode:
        parser.error("the source has changes that are not committed")
    everything = [place for path in sorted(SOURCE.rglob("*.py")) for place in places(path)]
    drawn = random.Random(line.seed).sample(everything, line.count)
    for number, place in enumerate(drawn, 1):
        if line.only and number not in line.only:
            continue
        text, began = place.path.read_text("utf-8"), time.monotonic()
        try:
            place.path.write_text(broken(place), "utf-8")
            stage, test = find(place)
        finally:
            place.path.write_text(text, "utf-8")
        where = f"{place.path.relative_to(ROOT)}:{place.line}"
        row = (str(number), where, place.change, stage or "not found", test, f"{time.monotonic() - began:.0f} s")
        with line.out.open("a", encoding="utf-8") as file:
            file.write("\t".join(row) + "\n")
        print(*row, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
