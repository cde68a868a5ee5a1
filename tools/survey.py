"""`make survey`: the sources in figures that neither ruff (complexity, arguments, statements), mypy nor import-linter
(layers, circles) reports. Nothing of Mezzotint is imported.

    python tools/survey.py                       this tree, as Markdown
    python tools/survey.py --against COMMIT      before and after, side by side
    python tools/survey.py --json                for other programs

How the figures are counted:

- **lines** are all lines of .py files, by folder and by story. `STORIES` assigns each folder or file to one story; a
  longer path goes before a shorter one.
- **result words** are local values and parameters called by a word that only says that they are one.
- a **class name** has more than one meaning where two modules define it, except for the names that the program looks up
  in each file of a folder and in compat/ (`ASKED_FOR`).
- a **feature** is a commit that adds a file to a folder of choices (`CHOICES`: a family, a format, an optimizer …), or
  more settings to settings/sections than it removes. Its size is the number of .py files below src/ that the same
  commit adds, changes or renames. A feature that took several commits is counted in parts, and a commit with two
  features is one: the figure is a hint for reviews, not a measure of a single feature.
"""

from __future__ import annotations

import argparse
import ast
import io
import json
import re
import subprocess
import symtable
import sys
import tarfile
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).parents[1]
PACKAGE = "src/mezzotint"
RESULT_WORDS = ("found", "told", "made", "wanted", "asked", "given", "taught")
"""Words that say of a value only that it is one."""
CHOICES = (
    "families",
    "data/formats",
    "settings/optimizers",
    "runtimes",
    "training/callbacks",
    "weights/layouts",
    "dialects",
)
"""Folders that the program lists: each file is a choice of users."""
ASKED_FOR = {"families": ("Family", "Files"), "runtimes": ("Runtime",)}
"""Classes that each file of a listed folder defines under the same name."""
STORIES = {
    "other trainers": ("compat", "dialects", "nets", "families/latte", "families/_latte", "data/formats/everydream",
                       "data/formats/mindone", "data/files/mindone"),
    "inspection": ("board", "inspect", "reports", "tasks/bench", "tasks/check", "tasks/doctor", "tasks/proof"),
    "data": ("data",),
    "cache": ("data/cache", "tasks/cache"),
    "model files": ("weights", "tasks/weights"),
    "recipe": ("recipe",),
    "families and mathematics": ("families", "diffusion"),
    "training loop": ("training", "runtimes"),
    "checkpoints and callbacks": ("training/callbacks", "training/checkpoints"),
    "command train": ("tasks/train", "tasks/assemble", "tasks/holding"),
    "sampling": ("sampling", "tasks/sample", "tasks/prompts"),
    "adapters": ("adapters",),
    "command line": ("tasks", "commands", "cli", "__main__"),
    "ground": ("",),
}  # fmt: skip
SECTIONS = "src/mezzotint/settings/sections"
COUNT = 10
"""So many features are listed."""

Figures = dict[str, dict[str, float | str]]


@dataclass(frozen=True)
class Module:
    """A source file. path: below the package."""

    path: PurePosixPath
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)

    @cached_property
    def nodes(self) -> tuple[ast.AST, ...]:
        """Every node of the tree."""
        return tuple(ast.walk(self.tree))

    @property
    def lines(self) -> int:
        return self.text.count("\n")


def read_modules(root: Path) -> dict[str, Module]:
    """The source files of a tree by their path below the package."""
    top = root / PACKAGE
    paths = {path.relative_to(top).as_posix(): path for path in sorted(top.rglob("*.py"))}
    return {name: Module(PurePosixPath(name), path.read_text("utf-8")) for name, path in paths.items()}


# --- lines ---


def folder_figures(modules: Mapping[str, Module]) -> Figures:
    """A row for each top folder, those of tasks/ by themselves."""
    groups: defaultdict[str, list[int]] = defaultdict(list)
    for module in modules.values():
        parts = module.path.parts[:-1]
        for name in {"all", "/".join(parts[:1]) or "(top level)", "/".join(parts[: 1 + (parts[:1] == ("tasks",))])} - {
            ""
        }:
            groups[name].append(module.lines)
    return {f"folder {name}": row(lines) for name, lines in sorted(groups.items())}


def row(lines: Sequence[int]) -> dict[str, float | str]:
    ordered = sorted(lines)
    spread = f"{ordered[len(ordered) // 2]} / {ordered[len(ordered) * 9 // 10]} / {ordered[-1]}"
    return {"files": len(lines), "lines": sum(lines), "file median / p90 / max": spread}


def story_of(path: PurePosixPath) -> str:
    """The story with the longest prefix of a path; a prefix ends anywhere in a name."""
    matches = {
        prefix: story for story, prefixes in STORIES.items() for prefix in prefixes if str(path).startswith(prefix)
    }
    return matches[max(matches, key=len)]


def story_figures(modules: Mapping[str, Module]) -> dict[str, float | str]:
    """Lines and share of each story, the largest first."""
    lines = Counter[str]()
    for module in modules.values():
        lines[story_of(module.path)] += module.lines
    return {story: f"{n:,} ({n / max(1, lines.total()):.1%})" for story, n in lines.most_common()}


# --- names ---


def result_names(text: str) -> int:
    """How many values and parameters of a file are called by one of the empty words, each once in its scope."""
    if not re.search(rf"\b({'|'.join(RESULT_WORDS)})\b", text):
        return 0
    tables = [symtable.symtable(text, "file", "exec")]
    count = 0
    while tables:
        table = tables.pop()
        tables += table.get_children()
        names = {s.get_name() for s in table.get_symbols() if s.is_assigned() or s.is_parameter()}
        count += len(names & set(RESULT_WORDS))
    return count


def result_names_below(folder: Path) -> int:
    """How many there are in all files of a folder."""
    return sum(result_names(path.read_text(encoding="utf-8")) for path in sorted(folder.rglob("*.py")))


def several_meanings(modules: Mapping[str, Module]) -> dict[str, int]:
    """Class names that mean more than one thing, with how many."""
    asked_for = {name: folder for folder, names in ASKED_FOR.items() for name in names}
    homes = set()
    for name, module in modules.items():
        for each in (node.name for node in module.nodes if isinstance(node, ast.ClassDef)):
            folder = asked_for.get(each)
            is_listed = folder is not None and (str(module.path.parent) == folder or module.path.parts[0] == "compat")
            homes.add((each, folder if is_listed else name))
    return {name: n for name, n in Counter(name for name, _ in homes).items() if n > 1}


def bodies_twice(modules: Mapping[str, Module], least: int = 4) -> list[list[str]]:
    """Functions of at least so many lines whose bodies are equal apart from the docstring."""
    by_body: defaultdict[str, list[str]] = defaultdict(list)
    for name, module in modules.items():
        for node in module.nodes:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                body = node.body[ast.get_docstring(node) is not None :]
                if body and (body[-1].end_lineno or 0) - body[0].lineno + 1 >= least:
                    by_body["\n".join(map(ast.unparse, body))].append(f"{name}:{node.lineno} {node.name}")
    return [places for places in by_body.values() if len(places) > 1]


def name_figures(root: Path, modules: Mapping[str, Module]) -> dict[str, float | str]:
    """Result words, names with several meanings, copies."""
    twice = several_meanings(modules)
    return {
        **{f"result words in {top}": result_names_below(root / top) for top in ("src", "tests", "tools")},
        "class names with more than one meaning": ", ".join(sorted(twice)) or "none",
        "functions that stand twice": len(bodies_twice(modules)),
    }


def paper_figures(root: Path) -> dict[str, float | str]:
    """Tests and pages."""
    tests = [path.read_text("utf-8") for path in (root / "tests").rglob("*.py")]
    pages = [path.stat().st_size for path in (root / "docs").rglob("*.md") if "decisions" not in path.parts]
    return {
        "test files": len(tests),
        "test lines": sum(text.count("\n") for text in tests),
        "test functions": sum(len(re.findall(r"^\s*(?:async )?def test_", text, re.MULTILINE)) for text in tests),
        "pages in docs, without decisions": len(pages),
        "KB in docs, without decisions": round(sum(pages) / 1000),
    }


# --- features ---


def feature_figures(commit: str) -> dict[str, float | str]:
    """The last features before a commit: how many source files each touched, and what it added."""
    figures: dict[str, float | str] = {}
    for sha, subject, added in features(commit):
        files = git("show", "-M", "--format=", "--name-only", sha, "--", f"{PACKAGE}/*.py").split()
        figures[f"{sha[:8]} {subject}"] = f"{len(files)} ({', '.join(added[:4])}{' …' if len(added) > 4 else ''})"
        if len(figures) == COUNT:
            break
    return figures


def features(commit: str) -> Iterator[tuple[str, str, list[str]]]:
    """(SHA, subject, what it adds) of each feature, the newest first."""
    folders = [f"{PACKAGE}/{folder}" for folder in CHOICES]
    for line in git("log", "--no-merges", "--format=%H %s", commit, "--", SECTIONS, *folders).splitlines():
        sha, _, subject = line.partition(" ")
        files = git("show", "-M", "--diff-filter=A", "--format=", "--name-only", sha, "--", *folders).split()
        choices = [re.fullmatch(rf"(?:{'|'.join(folders)})/([a-z]\w*?)(?:/__init__)?\.py", path) for path in files]
        added = [match[1] for match in choices if match is not None and match[1] not in ("base", "shared")]
        added += new_settings(git("show", "-M", "-U0", "--format=", sha, "--", SECTIONS))
        if added:
            yield sha, subject, added


def new_settings(diff: str) -> list[str]:
    """The fields of sections that a diff adds; none where it removes as many."""
    names = {sign: re.findall(rf"^\{sign}    (\w+): ", diff, re.MULTILINE) for sign in "+-"}
    added = [name for name in names["+"] if name not in names["-"]]
    return added if len(names["+"]) > len(names["-"]) else []


def git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, check=True, text=True).stdout


# --- printing ---


def figures_of(root: Path, commit: str | None) -> Figures:
    """Every figure, by section and name. commit: whose history has the features; None leaves them out."""
    modules = read_modules(root)
    history = {} if commit is None else {"files of the last features": feature_figures(commit)}
    return {
        **folder_figures(modules),
        "stories": story_figures(modules),
        "names": name_figures(root, modules),
        "tests and pages": paper_figures(root),
        **history,
    }


def markdown(sides: Mapping[str, Figures]) -> str:
    """The tables of one tree or of several side by side, by the heading of each."""
    sections = list(dict.fromkeys(name for figures in sides.values() for name in figures))
    folders = [name for name in sections if name.startswith("folder ")]
    columns = list(dict.fromkeys(c for figures in sides.values() for name in folders for c in figures.get(name, {})))
    heads = [f"{column}{f' ({side})' if len(sides) > 1 else ''}" for column in columns for side in sides]
    cells = {name: [figures.get(name, {}).get(c) for c in columns for figures in sides.values()] for name in folders}
    out = table("folder", heads, {name.removeprefix("folder "): values for name, values in cells.items()})
    for section in sections[len(folders) :]:
        names = dict.fromkeys(name for figures in sides.values() for name in figures.get(section, {}))
        out += table(section, sides, {n: [f.get(section, {}).get(n) for f in sides.values()] for n in names})
    return "\n".join(out)


def table(first: str, heads: Sequence[str] | Mapping[str, object], rows: Mapping[str, Sequence[object]]) -> list[str]:
    out = [f"| {first} | {' | '.join(heads)} |", "|---" * (len(heads) + 1) + "|"]
    for name, values in rows.items():
        texts = ["–" if v is None else f"{v:,}" if isinstance(v, int) else str(v) for v in (name, *values)]
        out.append(f"| {' | '.join(text.replace('|', chr(92) + '|') for text in texts)} |")
    return [*out, ""]


def extract(commit: str, folder: Path) -> Path:
    """The files of a commit in a folder."""
    done = subprocess.run(["git", "archive", commit], cwd=ROOT, capture_output=True, check=True)
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
        archive.extractall(folder, filter="data")
    return folder


def main(words: Sequence[str] | None = None) -> int:
    """The exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("root", nargs="?", type=Path, help="a tree with src/ and tests/, without its history; this one")
    parser.add_argument("--against", metavar="COMMIT", help="a column for that commit before this tree's")
    parser.add_argument("--json", action="store_true", help="for other programs")
    options = parser.parse_args(words)
    sides: dict[str, Figures] = {}
    if options.against:
        with tempfile.TemporaryDirectory() as folder:
            sides[options.against] = figures_of(extract(options.against, Path(folder)), options.against)
    sides["now"] = figures_of((options.root or ROOT).resolve(), None if options.root else "HEAD")
    if options.json:
        print(json.dumps(sides if options.against else sides["now"], indent=1, ensure_ascii=False))
    else:
        print(markdown(sides))
    return 0


if __name__ == "__main__":
    sys.exit(main())
