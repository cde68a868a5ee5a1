"""`make survey`: the house in figures, taken of the syntax trees alone: nothing of Mezzotint is imported.

    python tools/survey.py                       the tree this file lies in, as Markdown
    python tools/survey.py --against COMMIT      before and after, side by side
    python tools/survey.py --json                for other programs

How each figure is counted:

- a **function** is every `def`, methods and nested ones too; its lines are those from `def` to its end, without the
  docstring. Branches (cyclomatic complexity), nesting and locals are its own, without those of functions inside it.
- **imports** are edges between modules of the package. Those under `if TYPE_CHECKING` are counted apart; those inside
  of functions count as any other. A circle is a strongly connected set of two modules or more.
- a **room** of a package is a direct child, module or subpackage; an arrow is an edge between two rooms, counted once.
- a module's **test of its name**: `src/mezzotint/a/b.py` and `src/mezzotint/a/_b.py` have `tests/a/test_b.py`.
  `__init__.py` and `__main__.py` need none, nor do the facts of a choice: the tests of the file of the same name that
  computes hold them (`recipe/families/sd.py` and `families/sd.py`).
- a **fragment** is a module under 60 lines, `__init__.py` and `__main__.py` excepted. Some are choices: files of a
  folder that the program lists (a format, an optimizer, a family), and verbs (`run(arguments)` below tasks/), each in a
  file of its own by design.
- a **class name** has more than one meaning where two classes bear it. Those that the program asks each file of a
  listed folder for (`families/*.py` for `Family` and `Files`, `runtimes/*.py` for `Runtime`) answer one question and
  are one.
- a **closed list** shows as a string that is the name of a family, format or optimizer, of a file in the folder that
  lists them, in a module that is not its own (none of the words of its path is the name). Docstrings do not count, nor
  does `library`, which is a word of its own. Tables of other trainers (`compat/`) name ours by design, and are
  counted apart.
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
import tokenize
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).parents[1]
PACKAGE = "mezzotint"
RESULT_WORDS = ("found", "told", "made", "wanted", "asked", "given", "taught")
"""Words that say of a value only that it is one."""
FRAGMENT = 60
CHOICES = frozenset(
    ("data.formats", "families", "recipe.families",
     "recipe.formats", "recipe.optimizers", "runtimes", "training.callbacks", "training.optimizers", "weights.layouts")
)  # fmt: skip
"""Folders that the program lists: a choice is a file there without an underscore."""
FACTS = ("recipe.families", "recipe.formats", "recipe.optimizers")
"""Of these, those whose choices say facts; a file of the same name in another folder computes."""
ASKED_FOR = {"families": ("Family", "Files"), "runtimes": ("Runtime",)}
"""Classes that each file of a listed folder has under the same name, for the program finds them by it."""
FOLDER = 14
PAGE = 20_000
NAMES = {
    "families": ("families", "recipe.families"),
    "formats": ("data.formats",),
    "optimizers": ("recipe.optimizers",),
}
"""By kind, the folders whose files are called so."""
FOLDERS_OF_ROOMS = ("data", "tasks")

Function = ast.FunctionDef | ast.AsyncFunctionDef
Figures = dict[str, dict[str, float | str]]


@dataclass(frozen=True)
class Module:
    """A file of the package. name: dotted, without that of the package; a package is called as its folder."""

    name: str
    path: PurePosixPath
    text: str
    tree: ast.Module

    @property
    def is_ordinary(self) -> bool:
        return not self.path.name.startswith("__")

    @property
    def folder(self) -> str:
        """The dotted name of the folder it lies in."""
        return ".".join(self.path.parts[:-1])

    @property
    def room(self) -> str:
        """The first folder below the package."""
        return self.path.parts[0] if len(self.path.parts) > 1 else "(top level)"

    @cached_property
    def lines(self) -> int:
        return self.text.count("\n")

    @cached_property
    def nodes(self) -> tuple[ast.AST, ...]:
        """Every node of the tree, walked once for all figures."""
        return tuple(ast.walk(self.tree))

    @cached_property
    def functions(self) -> tuple[Function, ...]:
        return tuple(n for n in self.nodes if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef))

    @cached_property
    def classes(self) -> tuple[ast.ClassDef, ...]:
        return tuple(n for n in self.nodes if isinstance(n, ast.ClassDef))

    @cached_property
    def calls(self) -> tuple[ast.Call, ...]:
        return tuple(n for n in self.nodes if isinstance(n, ast.Call))

    @cached_property
    def comments(self) -> tuple[str, ...]:
        if "#" not in self.text:
            return ()
        tokens = tokenize.generate_tokens(io.StringIO(self.text).readline)
        return tuple(t.string for t in tokens if t.type == tokenize.COMMENT)

    @cached_property
    def docstrings(self) -> frozenset[int]:
        """Identities of the nodes that are strings standing alone: docstrings, and help under a field."""
        statements = (n for n in self.nodes if isinstance(n, ast.Expr))
        return frozenset(id(n.value) for n in statements if _text(n.value) is not None)

    @cached_property
    def docstring_lines(self) -> int:
        strings = (n for n in self.nodes if id(n) in self.docstrings)
        return sum(n.end_lineno - n.lineno + 1 for n in strings if isinstance(n, ast.Constant) and n.end_lineno)


@dataclass(frozen=True)
class Edge:
    """`importer` imports `imported`, both dotted."""

    importer: str
    imported: str
    for_types: bool = False


@dataclass(frozen=True)
class House:
    """A tree of sources. root: the folder that has src/ and tests/."""

    root: Path
    modules: Mapping[str, Module] = field(default_factory=dict)

    @cached_property
    def edges(self) -> frozenset[Edge]:
        return frozenset(edge for module in self.modules.values() for edge in _edges(module, self.modules))

    @cached_property
    def run_time(self) -> dict[str, set[str]]:
        """What each module imports when it runs."""
        graph: dict[str, set[str]] = {name: set() for name in self.modules}
        for edge in self.edges:
            if not edge.for_types:
                graph[edge.importer].add(edge.imported)
        return graph

    @cached_property
    def functions(self) -> list[tuple[str, Function]]:
        """(where, function), where as `data/plan.py:12 place`."""
        return [(f"{m.path}:{f.lineno} {f.name}", f) for m in self.modules.values() for f in m.functions]

    @property
    def ordinary(self) -> list[Module]:
        return [m for m in self.modules.values() if m.is_ordinary]


def read_house(root: Path) -> House:
    """Parses every file of src/ below a folder."""
    top = root / "src" / PACKAGE
    modules = {}
    for path in sorted(top.rglob("*.py")):
        inner = PurePosixPath(path.relative_to(top).as_posix())
        words = inner.with_suffix("").parts
        name = ".".join(words[:-1] if words[-1] == "__init__" else words)
        text = path.read_text(encoding="utf-8")
        modules[name] = Module(name, inner, text, ast.parse(text))
    return House(root, modules)


def _edges(module: Module, known: Mapping[str, Module]) -> Iterator[Edge]:
    for node, for_types in _imports(module.tree, for_types=False):
        for target in _targets(node, module):
            name = _nearest(target, known)
            if name is not None and name != module.name:
                yield Edge(module.name, name, for_types)


def _imports(node: ast.AST, *, for_types: bool) -> Iterator[tuple[ast.Import | ast.ImportFrom, bool]]:
    if isinstance(node, ast.Import | ast.ImportFrom):
        yield node, for_types
    is_for_types = isinstance(node, ast.If) and _last_name(node.test) == "TYPE_CHECKING"
    for name in ("body", "orelse", "finalbody", "handlers", "cases"):  # imports are statements
        part = getattr(node, name, None)
        for child in part if isinstance(part, list) else ():
            yield from _imports(child, for_types=for_types or (is_for_types and name == "body"))


def _last_name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _targets(node: ast.Import | ast.ImportFrom, module: Module) -> Iterator[str]:
    """Dotted names that an import may mean, below the package."""
    if isinstance(node, ast.Import):
        dotted = [alias.name for alias in node.names]
    elif node.level:
        here = [PACKAGE, *module.path.parts[:-1]]
        base = ".".join([*here[: len(here) - node.level + 1], *([node.module] if node.module else [])])
        dotted = [f"{base}.{alias.name}" for alias in node.names]
    else:
        dotted = [f"{node.module}.{alias.name}" for alias in node.names]
    for name in dotted:
        if name == PACKAGE or name.startswith(f"{PACKAGE}."):
            yield name[len(PACKAGE) + 1 :]


def _nearest(target: str, known: Mapping[str, Module]) -> str | None:
    """The module that `a.b.name` lies in. An import of the whole package is no edge."""
    while target and target not in known:
        target = target.rpartition(".")[0]
    return target or None


# --- functions ------------------------------------------------------------------------------------------------------


def _text(node: ast.AST | None) -> str | None:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def own_nodes(function: Function) -> Iterator[ast.AST]:
    """What is in the body of a function, without the bodies of functions and classes inside it."""
    pending: list[ast.AST] = list(function.body)
    while pending:
        node = pending.pop()
        yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            pending.extend(ast.iter_child_nodes(node))


def length(function: Function) -> int:
    """Lines from `def` to the end, without the docstring."""
    lines = (function.end_lineno or function.lineno) - function.lineno + 1
    first = function.body[0]
    if isinstance(first, ast.Expr) and _text(first.value) is not None:
        lines -= (first.end_lineno or first.lineno) - first.lineno + 1
    return lines


def branches(function: Function) -> int:
    """McCabe's number: one, and one for each place where the way forks."""
    forks = 1
    for node in own_nodes(function):
        match node:
            case ast.If() | ast.For() | ast.AsyncFor() | ast.While() | ast.IfExp() | ast.ExceptHandler():
                forks += 1
            case ast.BoolOp(values=values):
                forks += len(values) - 1
            case ast.comprehension(ifs=ifs):
                forks += 1 + len(ifs)
            case ast.match_case(pattern=pattern):
                forks += not (isinstance(pattern, ast.MatchAs) and pattern.pattern is None)
            case _:
                pass
    return forks


BLOCKS = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.With, ast.AsyncWith, ast.Try, ast.TryStar, ast.Match)


def nesting(body: Sequence[ast.stmt]) -> int:
    """How deep blocks lie in blocks; `elif` is no deeper than `if`."""
    deepest = 0
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) or not isinstance(node, BLOCKS):
            continue
        inner: list[int] = []
        for name in ("body", "orelse", "finalbody"):
            part = getattr(node, name, [])
            is_elif = name == "orelse" and isinstance(node, ast.If) and len(part) == 1 and isinstance(part[0], ast.If)
            inner.append(nesting(part) - is_elif)
        inner += [nesting(h.body) for h in getattr(node, "handlers", [])]
        inner += [nesting(c.body) for c in getattr(node, "cases", [])]
        deepest = max(deepest, 1 + max(inner))
    return deepest


def parameters(function: Function) -> int:
    """How many it takes, without self and cls."""
    args = function.args
    plain = [*args.posonlyargs, *args.args]
    own = bool(plain) and plain[0].arg in ("self", "cls")
    return len(plain) - own + len(args.kwonlyargs) + bool(args.vararg) + bool(args.kwarg)


def result_words(function: Function) -> set[str]:
    """Which of the empty words it gives a value of its own."""
    stored = (n.id for n in own_nodes(function) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store))
    return set(RESULT_WORDS) & set(stored)


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


def class_fields(node: ast.ClassDef) -> int:
    """Annotated fields, and what `__init__` sets."""
    names = {n.target.id for n in node.body if isinstance(n, ast.AnnAssign) and isinstance(n.target, ast.Name)
             and "ClassVar" not in ast.unparse(n.annotation)}  # fmt: skip
    for method in node.body:
        if isinstance(method, ast.FunctionDef) and method.name == "__init__":
            stored = (n for n in ast.walk(method) if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Store))
            names |= {n.attr for n in stored if isinstance(n.value, ast.Name) and n.value.id == "self"}
    return len(names)


# --- imports --------------------------------------------------------------------------------------------------------


def circles(graph: Mapping[str, Iterable[str]]) -> list[list[str]]:
    """Strongly connected sets of two or more, sorted (Tarjan 1972)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    circles: list[list[str]] = []

    def visit(name: str) -> None:
        index[name] = low[name] = len(index)
        stack.append(name)
        for other in graph[name]:
            if other not in index:
                visit(other)
                low[name] = min(low[name], low[other])
            elif other in stack:
                low[name] = min(low[name], index[other])
        if low[name] == index[name]:
            members = stack[stack.index(name) :]
            del stack[stack.index(name) :]
            if len(members) > 1:
                circles.append(sorted(members))

    for name in sorted(graph):
        if name not in index:
            visit(name)
    return sorted(circles)


def rooms(house: House, folder: str) -> tuple[set[str], set[tuple[str, str]]]:
    """The direct children of a package and the arrows between them."""

    def child(name: str) -> str:
        return name[len(folder) + 1 :].partition(".")[0] if name.startswith(f"{folder}.") else ""

    children = {child(name) for name in house.modules} - {""}
    pairs = {(child(a), child(b)) for a, others in house.run_time.items() for b in others}
    return children, {(a, b) for a, b in pairs if a and b and a != b}


def private_imports(house: House) -> tuple[set[tuple[str, str]], set[tuple[str, str]]]:
    """(importer, imported) where a module with an underscore is imported from another package, and from outside of the
    folder that it is private to."""
    packages, folders = set(), set()
    for edge in house.edges:
        words = edge.imported.split(".")
        first = next((i for i, word in enumerate(words) if word.startswith("_") and not word.startswith("__")), None)
        if first is None:
            continue
        home = words[:first]
        if house.modules[edge.importer].path.parts[:first] != tuple(home):
            folders.add((edge.importer, edge.imported))
        if house.modules[edge.importer].room != house.modules[edge.imported].room:
            packages.add((edge.importer, edge.imported))
    return packages, folders


def test_of(module: Module) -> PurePosixPath:
    """Where the test of a module's name would lie, below tests/."""
    return module.path.with_name(f"test_{module.path.stem.lstrip('_')}.py")


# --- what is called -------------------------------------------------------------------------------------------------


def _called(call: ast.Call) -> str:
    return ast.unparse(call.func) if isinstance(call.func, ast.Name | ast.Attribute) else ""


def is_rename(call: ast.Call) -> bool:
    """`os.replace`, `os.rename`, and `path.replace(other)`, which of all `replace` takes one argument."""
    name = _called(call)
    if name in ("os.replace", "os.rename", "shutil.move"):
        return True
    if not isinstance(call.func, ast.Attribute) or len(call.args) != 1 or call.keywords:
        return False
    return call.func.attr in ("rename", "replace")


def is_typing_cast(module: Module) -> Callable[[ast.Call], bool]:
    taken = any(
        isinstance(n, ast.ImportFrom) and n.module == "typing" and any(a.name == "cast" for a in n.names)
        for n in module.tree.body
    )
    return lambda call: _called(call) == "typing.cast" or (taken and _called(call) == "cast")


def is_broad(handler: ast.ExceptHandler) -> bool:
    names = {n.id for n in ast.walk(handler.type) if isinstance(n, ast.Name)} if handler.type else {"BaseException"}
    return bool(names & {"Exception", "BaseException"})


def names_of(house: House, folders: Collection[str]) -> set[str]:
    """What the choices of folders are called, those that are folders themselves among them."""
    packages = {name.rpartition(".")[::2] for name, m in house.modules.items() if m.path.name == "__init__.py"}
    names = {m.path.stem for m in house.ordinary if m.folder in folders and _is_choice(m)}
    names |= {name for folder, name in map(tuple, packages) if folder in folders and name != "shared"}
    return {name.replace("_", "-") for name in names if name[0] != "_"} - {"library"}


def named_outside(house: House, names: Collection[str]) -> list[tuple[str, str]]:
    """(module, name) for every string that is one of the names, in a module that is not its own."""
    spelled = {spelling: name for name in names for spelling in (name, name.replace("-", "_"))}
    places = []
    for module in house.modules.values():
        words = [part.removesuffix(".py") for part in module.path.parts]
        for node in module.nodes:
            if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
                continue
            name = spelled.get(node.value)
            if name is None or id(node) in module.docstrings:
                continue
            own = name.replace("-", "_")
            if not any(f"_{own}_" in f"_{word}_" for word in words):
                places.append((str(module.path), name))
    return places


# --- the figures ----------------------------------------------------------------------------------------------------


def at(numbers: Sequence[float], share: float) -> float:
    """The number that so great a share lies at or below."""
    ordered = sorted(numbers)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0


def spread(numbers: Sequence[int]) -> str:
    return f"{at(numbers, 0.5):g} / {at(numbers, 0.9):g} / {max(numbers, default=0)}"


def _worst(pairs: Iterable[tuple[str, int]], count: int = 6) -> str:
    ordered = sorted(pairs, key=lambda pair: (-pair[1], pair[0]))[:count]
    return ", ".join(f"{where} {number}" for where, number in ordered)


def package_figures(house: House) -> Figures:
    """A line for each package, and one for all."""
    groups: dict[str, list[Module]] = defaultdict(list)
    for module in house.modules.values():
        groups[module.room].append(module)
    figures: Figures = {}
    for name, modules in [*sorted(groups.items()), ("all", list(house.modules.values()))]:
        lines = sum(m.lines for m in modules) or 1
        figures[name] = {
            "files": len(modules),
            "lines": sum(m.lines for m in modules),
            "function median / p90 / max": spread([length(f) for m in modules for f in m.functions]),
            "docstring %": round(100 * sum(m.docstring_lines for m in modules) / lines, 1),
            "comment %": round(100 * sum(len(m.comments) for m in modules) / lines, 1),
        }
    return figures


def shape_figures(house: House) -> dict[str, float | str]:
    """Files, functions and classes."""
    functions = house.functions
    lengths = [(where, length(f)) for where, f in functions]
    forks = [(where, branches(f)) for where, f in functions]
    depths = [(where, nesting(f.body)) for where, f in functions]
    taken = [(where, parameters(f)) for where, f in functions]
    fields = [(f"{m.path} {c.name}", class_fields(c)) for m in house.modules.values() for c in m.classes]
    public = [f for _, f in functions if not f.name.startswith("_")]
    return {
        "source lines": sum(m.lines for m in house.modules.values()),
        "source files": len(house.modules),
        "file lines median / p90 / max": spread([m.lines for m in house.modules.values()]),
        "functions": len(functions),
        "functions over 40 lines": sum(n > 40 for _, n in lengths),
        "functions over 60 lines": sum(n > 60 for _, n in lengths),
        "longest functions": _worst(lengths),
        "branches median / p90 / max": spread([n for _, n in forks]),
        "functions over 10 branches": sum(n > 10 for _, n in forks),
        "functions over 15 branches": sum(n > 15 for _, n in forks),
        "most branches": _worst(forks),
        "functions nested 4 deep or more": sum(n >= 4 for _, n in depths),
        "deepest nesting": _worst(depths, 3),
        "parameters median / p90 / max": spread([n for _, n in taken]),
        "functions with over 6 parameters": sum(n > 6 for _, n in taken),
        "most parameters": _worst(taken),
        "classes": len(fields),
        "classes with over 15 fields": sum(n > 15 for _, n in fields),
        "most fields": _worst(fields),
        "public functions with a docstring %": round(100 * sum(map(bool, map(ast.get_docstring, public))) / len(public))
        if public
        else 0,
    }


def typing_figures(house: House) -> dict[str, float | str]:
    """What escapes the types, and what asks at run time."""
    count: Counter[str] = Counter()
    for module in house.modules.values():
        cast = is_typing_cast(module)
        for node in module.nodes:
            match node:
                case ast.Name(id="Any"):
                    count["Any"] += 1
                case ast.Assert():
                    count["assert"] += 1
                case ast.Global():
                    count["global"] += 1
                case ast.ExceptHandler():
                    count["broad except"] += is_broad(node)
                case ast.Call():
                    name = _called(node)
                    count["typing.cast"] += cast(node)
                    if name in ("getattr", "hasattr", "isinstance"):
                        count[name] += 1
        count["type: ignore"] += sum("type: ignore" in c for c in module.comments)
    names = (
        "Any", "type: ignore", "typing.cast", "getattr", "hasattr", "isinstance", "broad except", "assert", "global",
    )  # fmt: skip
    return {name: count[name] for name in names}


def import_figures(house: House) -> dict[str, float | str]:
    """Edges, circles, fan-out and what is taken from behind an underscore."""
    both = {name: set(others) for name, others in house.run_time.items()}
    for_types = {(e.importer, e.imported) for e in house.edges if e.for_types}
    for importer, imported in for_types:
        both[importer].add(imported)
    packages, folders = private_imports(house)
    shown = " · ".join(" – ".join(c) for c in circles(both))
    return {
        "edges at run time": sum(map(len, house.run_time.values())),
        "edges for types alone": sum(b not in house.run_time[a] for a, b in for_types),
        "circles at run time": len(circles(house.run_time)),
        "circles with types": len(circles(both)),
        "which circles": shown or "none",
        "largest fan-out": _worst(((str(house.modules[n].path), len(o)) for n, o in house.run_time.items()), 4),
        "private modules imported from another package": len(packages),
        "private modules imported from outside of their folder": len(folders),
        "which private ones": ", ".join(f"{b} by {a}" for a, b in sorted(folders)) or "none",
    }


def _is_choice(module: Module) -> bool:
    if module.path.name[0] == "_" or module.path.stem == "base":
        return False
    verbs = (n for n in module.tree.body if isinstance(n, ast.FunctionDef) and n.name == "run")
    return (
        module.folder in CHOICES
        or module.room == "compat"
        or (module.room == "tasks" and any(parameters(verb) == 1 for verb in verbs))
    )


def room_figures(house: House) -> dict[str, float | str]:
    """Folders and fragments."""
    importers: Counter[str] = Counter(name for others in house.run_time.values() for name in others)
    small = {m.name for m in house.ordinary if m.lines < FRAGMENT}
    alone = {m.name for m in house.ordinary if importers[m.name] == 1}
    choices = {m.name for m in house.ordinary if _is_choice(m)}
    folders = Counter(m.folder for m in house.ordinary)
    large = {name or "(top level)": n for name, n in folders.items() if n > FOLDER}
    figures: dict[str, float | str] = {}
    for folder in FOLDERS_OF_ROOMS:
        children, arrows = rooms(house, folder)
        figures |= {f"{folder}: rooms": len(children), f"{folder}: arrows between rooms": len(arrows)}
    return figures | {
        f"folders with over {FOLDER} modules": len(large),
        "which folders": _worst(large.items(), 20) or "none",
        f"files under {FRAGMENT} lines": len(small),
        f"files under {FRAGMENT} lines that are no choices": len(small - choices),
        "modules with one importer": len(alone),
        f"files under {FRAGMENT} lines with one importer": len(small & alone),
        "which of these": ", ".join(sorted(small & alone)) or "none",
    }


def several_meanings(house: House) -> dict[str, int]:
    """Class names that mean more than one thing, with how many."""
    listed = {name: folder for folder, names in ASKED_FOR.items() for name in names}
    homes = {
        (
            c.name,
            listed[c.name] if m.folder == listed.get(c.name) or (m.room == "compat" and c.name in listed) else m.name,
        )
        for m in house.modules.values()
        for c in m.classes
    }
    return {name: n for name, n in Counter(name for name, _ in homes).items() if n > 1}


def result_names_below(folder: Path) -> int:
    """How many there are in all files of a folder."""
    return sum(result_names(path.read_text(encoding="utf-8")) for path in sorted(folder.rglob("*.py")))


def name_figures(house: House) -> dict[str, float | str]:
    """Empty words for results, and class names that mean more than one thing."""
    words = [result_words(f) for _, f in house.functions]
    twice = several_meanings(house)
    called = [where for where, f in house.functions if f.name in RESULT_WORDS]
    taken = [
        any(a.arg in RESULT_WORDS for a in (*f.args.posonlyargs, *f.args.args, *f.args.kwonlyargs))
        for _, f in house.functions
    ]
    anything = {top: result_names_below(house.root / top) for top in ("src", "tests", "tools")}
    return {
        **{f"names of results {', '.join(RESULT_WORDS)} in {top}": n for top, n in anything.items()},
        "functions with a local " + ", ".join(RESULT_WORDS): sum(map(bool, words)),
        **{f"functions with a local {word}": sum(word in w for w in words) for word in RESULT_WORDS},
        "functions with such a parameter": sum(taken),
        "functions and properties so called": len(called),
        "which are so called": ", ".join(called) or "none",
        "class names with more than one meaning": len(twice),
        "which class names": _worst(twice.items(), 40) or "none",
    }


def bodies_twice(house: House, least: int = 4) -> list[list[str]]:
    """Functions whose bodies, docstrings aside, are the same to the letter and have so many lines."""
    by_body: defaultdict[str, list[str]] = defaultdict(list)
    for where, function in house.functions:
        is_documented = isinstance(function.body[0], ast.Expr) and _text(function.body[0].value) is not None
        body = function.body[is_documented:]
        if body and (body[-1].end_lineno or 0) - body[0].lineno + 1 >= least:
            by_body["\n".join(map(ast.unparse, body))].append(where)
    return [places for places in by_body.values() if len(places) > 1]


def repetition_figures(house: House) -> dict[str, float | str]:
    """What should be in one place, and lists of names that should not be kept."""
    near, copies, renames, others = Counter[str](), Counter[str](), Counter[str](), Counter[str]()
    for module in house.modules.values():
        where = str(module.path)
        for call in module.calls:
            name = _called(call).rpartition(".")[2]
            near[where] += name == "get_close_matches"
            copies[where] += name == "model_copy"
            others[where] += name == "with_values" and module.room not in ("tasks", "recipe", "compat")
            renames[where] += is_rename(call) and module.path.stem != "durable"
    figures: dict[str, float | str] = {
        "get_close_matches: calls": near.total(),
        "get_close_matches: files": len(+near),
        "renames outside of durable: calls": renames.total(),
        "renames outside of durable: files": len(+renames),
        "which rename": ", ".join(sorted(+renames)) or "none",
        "model_copy: calls": copies.total(),
        "with_values below the tasks: calls": others.total(),
        "functions of four lines or more that stand twice": len(bodies_twice(house)),
    }
    for kind, folders in NAMES.items():
        places = [where for where, _ in named_outside(house, names_of(house, folders))]
        files = Counter(where for where in places if not where.startswith("compat/"))
        figures |= {
            f"names of {kind} outside of their own files": len(places),
            f"names of {kind} outside of their own files and of compat": files.total(),
            f"which name {kind}": _worst(files.items(), 20) or "none",
        }
    return figures


def paper_figures(house: House) -> dict[str, float | str]:
    """Tests and pages."""
    tests = {path: path.read_text(encoding="utf-8") for path in sorted((house.root / "tests").rglob("*.py"))}
    there = {PurePosixPath(path.relative_to(house.root / "tests").as_posix()) for path in tests}
    needed = [m for m in house.ordinary if m.text.strip() and not (m.folder in FACTS and _is_choice(m))]
    with_test = [m for m in needed if test_of(m) in there]
    named = {path.name for path in there}
    pages = {str(p.relative_to(house.root)): p.stat().st_size for p in sorted((house.root / "docs").rglob("*.md"))}
    pages = {name: size for name, size in pages.items() if "decisions" not in name}
    readme = house.root / "README.md"
    return {
        "test files": sum(path.name.startswith("test_") for path in there),
        "test lines": sum(text.count("\n") for text in tests.values()),
        "test functions": sum(len(re.findall(r"^\s*def test_", text, re.MULTILINE)) for text in tests.values()),
        "modules that need a test of their name": len(needed),
        "modules with a test of their name": len(with_test),
        "modules with a test of their name %": round(100 * len(with_test) / len(needed)) if needed else 0,
        "modules with a test of that name in any folder": sum(test_of(m).name in named for m in needed),
        "README lines": readme.read_text(encoding="utf-8").count("\n") if readme.is_file() else 0,
        "pages in docs, without decisions": len(pages),
        "KB in docs, without decisions": round(sum(pages.values()) / 1000),
        f"pages over {PAGE // 1000} KB": sum(size > PAGE for size in pages.values()),
        "largest pages, bytes": _worst(pages.items(), 4),
    }


def figures_of(house: House) -> Figures:
    """Every figure, by section and name."""
    packages = {f"package {name}": row for name, row in package_figures(house).items()}
    return packages | {
        "files, functions, classes": shape_figures(house),
        "rooms": room_figures(house),
        "imports": import_figures(house),
        "names": name_figures(house),
        "one of each": repetition_figures(house),
        "typing": typing_figures(house),
        "tests and pages": paper_figures(house),
    }


# --- printing -------------------------------------------------------------------------------------------------------


def _cell(value: float | str | None) -> str:
    return "–" if value is None else f"{value:,}" if isinstance(value, int) else str(value).replace("|", "\\|")


def markdown(sides: Mapping[str, Figures]) -> str:
    """The tables of one tree or of several side by side, by the heading of each."""
    sections = list(dict.fromkeys(name for figures in sides.values() for name in figures))
    packages = [name for name in sections if name.startswith("package ")]
    out: list[str] = []
    if packages:
        columns = list(next(iter(sides.values()))["package all"])
        heads = [f"{column}{f' ({side})' if len(sides) > 1 else ''}" for column in columns for side in sides]
        out += ["| package | " + " | ".join(heads) + " |", "|---" * (len(heads) + 1) + "|"]
        for name in packages:
            cells = [_cell(figures.get(name, {}).get(column)) for column in columns for figures in sides.values()]
            out.append(f"| {name.removeprefix('package ')} | " + " | ".join(cells) + " |")
        out.append("")
    for section in sections:
        if section in packages:
            continue
        names = dict.fromkeys(name for figures in sides.values() for name in figures.get(section, {}))
        out += [f"| {section} | " + " | ".join(sides) + " |", "|---" * (len(sides) + 1) + "|"]
        for name in names:
            cells = [_cell(figures.get(section, {}).get(name)) for figures in sides.values()]
            out.append(f"| {name} | " + " | ".join(cells) + " |")
        out.append("")
    return "\n".join(out)


def extract(commit: str, folder: Path) -> Path:
    """The files of a commit in a folder."""
    done = subprocess.run(["git", "archive", commit], cwd=ROOT, capture_output=True, check=True)
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
        archive.extractall(folder, filter="data")
    return folder


def main(words: Sequence[str] | None = None) -> int:
    """The exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("root", nargs="?", type=Path, default=ROOT, help="a tree with src/ and tests/; this one")
    parser.add_argument("--against", metavar="COMMIT", help="a column for that commit before this tree's")
    parser.add_argument("--json", action="store_true", help="for other programs")
    options = parser.parse_args(words)
    sides: dict[str, Figures] = {}
    if options.against:
        with tempfile.TemporaryDirectory() as folder:
            sides[options.against] = figures_of(read_house(extract(options.against, Path(folder))))
    sides["now"] = figures_of(read_house(options.root.resolve()))
    if options.json:
        print(json.dumps(sides if options.against else sides["now"], indent=1, ensure_ascii=False))
    else:
        print(markdown(sides))
    return 0


if __name__ == "__main__":
    sys.exit(main())
