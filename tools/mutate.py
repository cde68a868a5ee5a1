"""Breaks places of the source, drawn by a seed, one after the other, and reports which test fails for each.

    python tools/mutate.py --seed=1 --count=100 --out=mutants.tsv

First all tests but the exhaustive ones run once, with a mark at each drawn place that writes down the test that reaches
it, also from processes that the test starts. Then each place is broken in this checkout, whose source must be as
committed, and only the tests that reach it run, until one fails; a place that is reached outside of tests, at import,
gets all of them. A broken place that makes tests hang counts as found. `--only=3,17` repeats some.
"""

from __future__ import annotations

import argparse
import ast
import copy
import os
import random
import re
import subprocess
import sys
import tempfile
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
_ALL = ("-m", "not exhaustive and not timing and not gpu", "--timeout=600")
_TWO = ("-n", "2", "--dist", "loadfile")
_MANY = 40
"""So many tests, drawn at random, run first where more reach a place."""
_MARK = """import os

_seen = set()


def mark(number):
    test = os.environ.get("PYTEST_CURRENT_TEST", "")
    if (number, test) not in _seen:
        _seen.add((number, test))
        file = os.open({log!r}, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(file, f"{{number}}\\t{{test}}\\n".encode())
        os.close(file)
"""


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


def mark(drawn: Sequence[Place], log: Path) -> None:
    """Writes a mark before the statement of each place; a mark appends its number and the running test to `log`."""
    (SOURCE / "reached.py").write_text(_MARK.format(log=os.fspath(log)), "utf-8")
    for path in {place.path for place in drawn}:
        tree = ast.parse(path.read_text("utf-8"))
        nodes = list(ast.walk(tree))
        numbers = {id(nodes[place.node]): number for number, place in enumerate(drawn, 1) if place.path == path}
        lists = [value for node in nodes for _, value in ast.iter_fields(node) if _is_block(value)]
        for block in sorted(lists, key=lambda block: -block[0].lineno):
            for index in reversed(range(len(block))):
                for node in ast.walk(block[index]):
                    if number := numbers.pop(id(node), None):
                        text = f"__import__('mezzotint.reached', fromlist=['mark']).mark({number})"
                        block.insert(index, ast.parse(text).body[0])
        path.write_text(ast.unparse(ast.fix_missing_locations(tree)), "utf-8")


def _is_block(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(node, ast.stmt) for node in value)


def reaching(log: Path) -> dict[int, list[str]]:
    """By number of the place, what pytest runs to reach it: tests; a whole file, if a fixture reaches it, which other
    tests may share; an empty text, if it is reached outside of tests."""
    by_number: dict[int, set[str]] = {}
    for line in log.read_text("utf-8").splitlines():
        number, _, test = line.partition("\t")
        test, _, phase = test.rpartition(" ")
        by_number.setdefault(int(number), set()).add(test if phase == "(call)" else test.partition("::")[0])
    return {number: sorted(tests) for number, tests in by_number.items()}


def failing(tests: Sequence[str], limit: float, *words: str) -> str | None:
    """The first test that fails, or None. limit: in seconds."""
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as names:
        names.write("\n".join(tests))
        names.flush()
        line = [sys.executable, "-m", "pytest", "-x", "-q", "--no-header", "-p", "no:cacheprovider", f"@{names.name}"]
        try:
            done = subprocess.run([*line, *words], cwd=ROOT, capture_output=True, text=True, timeout=limit)
        except subprocess.TimeoutExpired:
            return "(tests hang)"
    if done.returncode in (0, 5):
        return None
    match = re.search(r"^(?:FAILED|ERROR) (\S+)", done.stdout, flags=re.MULTILINE)
    return match[1] if match else "(tests cannot be collected)"


def find(tests: Sequence[str]) -> str:
    """The test that finds a broken place, of those that reach it; empty if none does."""
    if "" in tests:
        tests = ["tests"]
    elif len(tests) > _MANY and (test := failing(random.Random(0).sample(tests, _MANY), 600, *_ALL)):
        return test
    return failing(tests, 7200, *_ALL, *(_TWO if len(tests) > _MANY or tests == ["tests"] else ())) or ""


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
    log = line.out.resolve().with_suffix(".reached")
    if not log.exists():
        try:
            mark(drawn, log)
            subprocess.run([sys.executable, "-m", "pytest", "-q", *_ALL, *_TWO], cwd=ROOT)
        finally:
            (SOURCE / "reached.py").unlink()
            subprocess.run(["git", "checkout", "--quiet", "--", "src"], cwd=ROOT, check=True)
    tests = reaching(log)
    for number, place in enumerate(drawn, 1):
        if line.only and number not in line.only:
            continue
        text, began, test = place.path.read_text("utf-8"), time.monotonic(), ""
        try:
            place.path.write_text(broken(place), "utf-8")
            if number in tests:
                test = find(tests[number])
        finally:
            place.path.write_text(text, "utf-8")
        where = f"{place.path.relative_to(ROOT)}:{place.line}"
        reached = "(all)" if "" in tests.get(number, ()) else str(len(tests.get(number, ())))
        row = (str(number), where, place.change, reached, test or "not found", f"{time.monotonic() - began:.0f} s")
        with line.out.open("a", encoding="utf-8") as file:
            file.write("\t".join(row) + "\n")
        print(*row, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
