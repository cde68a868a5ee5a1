"""Rules of the source: layers, imports between siblings, and no code that executes the contents of files."""

from __future__ import annotations

import ast
import importlib
import os
import re
import subprocess
import sys
from collections.abc import Collection, Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, TypeGuard

import pytest

import mezzotint
from mezzotint import registry

PACKAGE = Path(mezzotint.__file__).parent
ROOT = Path(__file__).parents[1]
FILES = sorted(PACKAGE.rglob("*.py"))
FOLDERS = (
    "families", "settings/families", "runtimes", "dialects", "data/formats", "settings/formats", "weights/layouts",
    "settings/optimizers", "training/optimizers", "training/callbacks",
)  # fmt: skip
UNPICKLING = PACKAGE / "weights" / "files" / "unpickling.py"
ENTRY_POINTS = ("cli.py", "__main__.py", "board/acting/drawer.py", "board/reading/token_counts.py")
"""Files that start a process."""


def test_packages_import_only_from_lower_layers() -> None:
    from importlinter.cli import lint_imports

    before = Path.cwd()
    os.chdir(ROOT)
    try:
        assert lint_imports(config_filename="pyproject.toml", no_cache=True) == 0
    finally:
        os.chdir(before)


@cache
def survey() -> Any:
    """The program of `make survey`."""
    with pytest.MonkeyPatch.context() as patched:
        patched.syspath_prepend(ROOT / "tools")
        return importlib.import_module("survey")


@cache
def modules() -> dict[str, Any]:
    """All source files, parsed once for all tests."""
    return dict(survey().read_modules(ROOT))


def module_of(path: Path) -> Any:
    return modules()[path.relative_to(PACKAGE).as_posix()]


def tree_of(path: Path) -> ast.Module:
    tree: ast.Module = module_of(path).tree
    return tree


def nodes_of(path: Path) -> tuple[ast.AST, ...]:
    """All nodes of the syntax tree of a file."""
    nodes: tuple[ast.AST, ...] = module_of(path).nodes
    return nodes


@cache
def imports_of(path: Path) -> tuple[str, ...]:
    """Dotted names that a file imports, including names from modules."""
    names: list[str] = []
    for node in nodes_of(path):
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            names += [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
    return tuple(names)


def dotted(path: Path) -> str:
    return ".".join(("mezzotint", *path.relative_to(PACKAGE).with_suffix("").parts)).removesuffix(".__init__")


@pytest.mark.parametrize("folder", FOLDERS)
def test_siblings_do_not_import_each_other(folder: str) -> None:
    modules = [registry.find(folder, name).__name__ for name in registry.names(folder)]
    assert modules or folder == "dialects", "without folders of `compat` there are no dialects"
    for path in FILES:
        own = [module for module in modules if f"{dotted(path)}.".startswith(f"{module}.")]
        if not own:
            continue
        others = [module for module in modules if module not in own]
        assert not [name for name in imports_of(path) if f"{name}.".startswith(tuple(f"{m}." for m in others))], path


def private_folder(name: str) -> str:
    """The folder of the private module in a dotted name, as a dotted name with a trailing dot; empty without a private
    module."""
    parts = name.split(".")
    for number, part in enumerate(parts[1:], start=1):
        if part.startswith("_") and PACKAGE.joinpath(*parts[1 : number + 1]).with_suffix(".py").is_file():
            return ".".join(parts[:number]) + "."
    return ""


def test_private_modules_are_imported_only_within_their_folder() -> None:
    imports = [(path, name) for path in FILES for name in imports_of(path) if name.startswith("mezzotint.")]
    private = [(path, name) for path, name in imports if private_folder(name)]
    assert len(private) > 50
    violations = [f"{path.relative_to(PACKAGE)}: {name}" for path, name in private
                 if not f"{dotted(path)}.".startswith(private_folder(name))]  # fmt: skip
    assert violations == []


def test_packages_document_what_may_be_imported_from_outside() -> None:
    """Docstrings have `From outside: every file …`, or the names of modules."""
    modules = {dotted(path) for path in FILES}
    taken: dict[str, set[str]] = {}
    for path in FILES:
        for name in imports_of(path):
            words = name.split(".")
            module = next((m for n in range(len(words), 1, -1) if (m := ".".join(words[:n])) in modules), "")
            folder, _, last = module.rpartition(".")
            if folder.count(".") and not f"{dotted(path)}.".startswith(f"{folder}."):
                taken.setdefault(folder, set()).add(last)
    assert len(taken) > 30
    for path in FILES:
        if path.name == "__init__.py" and path.parent != PACKAGE:
            _, said, outside = (ast.get_docstring(tree_of(path)) or "").partition("From outside: ")
            assert said, f"{path}: document what may be imported from outside"
            named = {word.partition(".")[0] for word in re.findall(r"`([\w.]+)`", outside)}
            folders = {child.name for child in path.parent.iterdir() if child.is_dir()}
            others = taken.get(dotted(path), set()) - named - folders
            assert "every file" in outside or not others, f"{path}: {others} are imported from outside as well"


def test_layers_without_torch_do_not_import_it() -> None:
    code = (
        "import sys\nimport mezzotint.settings.reading.read, mezzotint.settings.reference\n"
        "import mezzotint.settings.resume_rules\n"
        "import mezzotint.cli, mezzotint.stages, mezzotint.registry, mezzotint.run_folder, mezzotint.draws\n"
        "import mezzotint.fault_injection, mezzotint.shapes\n"
        "for kind in ('families', 'formats', 'optimizers', 'weights_formats'):\n"
        "    for name in mezzotint.registry.names(f'settings/{kind}'):\n"
        "        mezzotint.registry.find(f'settings/{kind}', name)\n"
        "assert not {'torch', 'diffusers', 'transformers'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def dangers(nodes: Iterable[ast.AST]) -> Iterator[tuple[int, str]]:
    """(line, code) of everything that can execute code from a file, or a shell."""
    for node in nodes:
        match node:
            case ast.Import(names=names):
                for alias in names:
                    if alias.name.partition(".")[0] in PICKLES:
                        yield node.lineno, f"import {alias.name}"
            case ast.ImportFrom(module=str(module), names=names):
                if module.partition(".")[0] in PICKLES:
                    yield node.lineno, f"from {module}"
                for alias in names:
                    if (module, alias.name) in {("torch", "load"), ("yaml", "load"), ("os", "system")}:
                        yield node.lineno, f"from {module} import {alias.name}"
            case ast.Call(func=func, keywords=keywords):
                name = ast.unparse(func)
                if name in CALLS or name.rpartition(".")[2] in METHODS:
                    yield node.lineno, name
                for word in keywords:
                    unsafe = word.arg in UNSAFE and not (isinstance(word.value, ast.Constant) and not word.value.value)
                    if unsafe:
                        yield node.lineno, f"{name}({word.arg}=…)"
            case _:
                pass


PICKLES = {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "shelve", "marshal"}
CALLS = {
    "eval", "exec", "compile", "__import__", "torch.load", "torch.jit.load", "torch.hub.load", "os.system", "os.popen",
    "yaml.load", "yaml.load_all", "yaml.full_load", "yaml.unsafe_load", "yaml.full_load_all", "yaml.unsafe_load_all",
    "input",
}  # fmt: skip
METHODS = {"extractall", "unpack_archive"}
UNSAFE = {"allow_pickle", "shell", "trust_remote_code"}


def test_no_source_file_executes_what_it_reads() -> None:
    found_in = {str(path.relative_to(PACKAGE)): list(dangers(nodes_of(path))) for path in FILES}
    # the only place that reads pickles: in a separate process, with the restricted reader
    unpickling = found_in.pop(str(UNPICKLING.relative_to(PACKAGE)))
    assert [what for _, what in unpickling] == ["torch.load"]
    assert [ast.unparse(call.keywords[-1]) for call in nodes_of(UNPICKLING) if is_torch_load(call)] == [
        "weights_only=True"
    ]
    assert {name: places for name, places in found_in.items() if places} == {}


def is_torch_load(node: ast.AST) -> TypeGuard[ast.Call]:
    return isinstance(node, ast.Call) and ast.unparse(node.func) == "torch.load"


def test_nothing_imports_the_unpickling_program() -> None:
    importers = [
        path.name
        for path in FILES
        for node in nodes_of(path)
        if isinstance(node, (ast.Import, ast.ImportFrom)) and "unpickling" in ast.unparse(node)
    ]
    assert importers == []


@pytest.mark.parametrize(
    "line",
    [
        "import pickle",
        "from pickle import loads",
        "import torch\ntorch.load('x')",
        "from torch import load",
        "import yaml\nyaml.load('x', Loader=yaml.Loader)",
        "eval('1')",
        "exec('1')",
        "archive.extractall('x')",
        "np.load('x', allow_pickle=True)",
        "subprocess.run('ls', shell=True)",
        "AutoModel.from_pretrained('x', trust_remote_code=flag)",
        "os.system('ls')",
    ],
)
def test_source_check_detects_unsafe_code(line: str) -> None:
    assert list(dangers(ast.walk(ast.parse(line))))


def test_source_check_accepts_safe_code() -> None:
    safe = "np.load('x', allow_pickle=False)\nmodel.eval()\nre.compile('x')\ntorch.compile(model)\njson.load(file)\n"
    assert list(dangers(ast.walk(ast.parse(safe)))) == []


def reads_environment(nodes: Iterable[ast.AST]) -> Iterator[int]:
    for node in nodes:
        match node:
            case ast.Attribute(value=ast.Name(id="os"), attr="environ" | "getenv" | "environb"):
                yield node.lineno


def test_only_runtimes_and_entry_points_read_the_environment() -> None:
    allowed = {path for path in FILES if path.relative_to(PACKAGE).parts[0] in ("runtimes", "tasks")}
    allowed |= {PACKAGE / name for name in ENTRY_POINTS}
    reading = {str(path.relative_to(PACKAGE)): list(reads_environment(nodes_of(path))) for path in FILES}
    assert {name for name, lines in reading.items() if lines and PACKAGE / name not in allowed} == set()
    assert reading["runtimes/base.py"], "the check must detect known uses"


def test_recipes_are_changed_only_at_entry_points() -> None:
    """Sections are copied with other values only by `with_values` and by the reader of recipes. Below the tasks, this
    gives settings of something else: images joined to video batches, a single folder, the optimizer of a part."""
    words = ("model_copy(", "with_values(", "seed == -1")
    texts = {str(path.relative_to(PACKAGE)): code_of(path) for path in FILES if may_contain(words, path)}
    copying, changing = ({name for name, text in texts.items() if word in text} for word in words[:2])
    assert copying == {"settings/base.py", "settings/reading/read.py"}
    assert {name for name in changing if not name.startswith(("tasks/", "settings/", "compat/"))} == {
        "api/datasets.py",
        "data/catalogue/catalogue.py",
        "data/catalogue/indexing.py",
        "families/shared/flow_files.py",
        "families/shared/folder_files.py",
        "training/callbacks/previews.py",
        "training/optimizers/weight_decay.py",
    }
    open_seeds = {name for name, text in texts.items() if "seed == -1" in text and name.startswith("tasks/")}
    assert open_seeds == {"tasks/cache/cache.py", "tasks/reading/choices.py"}


def test_shared_code_has_no_list_of_families_formats_or_optimizers() -> None:
    """A name outside of its own files is a default, the same word of another program, or something the file itself
    writes. Folders of `compat` translate options of other trainers to our names."""
    for kind, (folders, reasons) in NAMED.items():
        names = {name for folder in folders for name in registry.names(folder) if not is_of_compat(folder, name)}
        named = names - {"library"}
        places = {path.relative_to(PACKAGE).as_posix() for path in FILES if names_another(path, named)}
        assert {where for where in places if not where.startswith("compat/")} == reasons.keys(), kind


def is_of_compat(folder: str, name: str) -> bool:
    return str(registry.find(folder, name).__name__).startswith("mezzotint.compat.")


def names_another(path: Path, names: Collection[str]) -> bool:
    """Whether a string of a file, except docstrings, is one of the names and not part of the path of the file."""
    words = [f"_{part}_" for part in path.relative_to(PACKAGE).with_suffix("").parts]
    others = [name.replace("-", "_") for name in names]
    others = [name for name in others if not any(f"_{name}_" in word for word in words)]
    documents = {id(node.value) for node in nodes_of(path) if isinstance(node, ast.Expr)}
    return any(
        isinstance(node.value, str) and node.value.replace("-", "_") in others and id(node) not in documents
        for node in nodes_of(path)
        if isinstance(node, ast.Constant)
    )


_LORA_FILES = "kohya and diffusers are layouts of adapter files"
NAMED = {
    "families": (("families", "settings/families"), {
        "settings/sections/buckets.py": "the list of sizes in SDXL's paper",
        "settings/sections/model.py": "the default",
        "weights/layouts/shared.py": "the layout of SDXL and its variants",
        "weights/single_file/extras.py": "the layout of old files without metadata",
    }),
    "formats": (("data/formats",), {
        "adapters/files.py": _LORA_FILES,
        "adapters/trainers.py": _LORA_FILES,
        "adapters/writing.py": _LORA_FILES,
        "api/datasets.py": "the format in which data sets of Python objects are written",
        "board/reading/data_sets.py": "the format of a folder of clips that no recipe names",
        "board/reading/candidates.py": "the format of a folder with a table, which no recipe names",
        "settings/formats/base.py": "the default for images joined to video batches",
        "settings/sections/data.py": "the default",
        "settings/sections/saving.py": _LORA_FILES,
        "tasks/bench/synthetic.py": "the synthetic data set that it writes",
        "tasks/reading/commands.py": _LORA_FILES,
        "tasks/train/exports.py": _LORA_FILES,
        "tasks/weights/adapter_files.py": _LORA_FILES,
        "weights/single_file/extras.py": "a key of its own JSON",
    }),
    "optimizers": (("settings/optimizers",), {
        "settings/sections/optim.py": "the default",
        "tasks/check/fitting.py": "the smallest shipped one, proposed where memory is short",
    }),
}  # fmt: skip
"""For each kind, the folders that list its names, and the files of shared code that name one, with the reason."""


_TRAINER = re.compile(r"mindone|everydream|open[-_]?sora|(?<![a-z])latte|mindspore", re.IGNORECASE)


def names_a_trainer(source: str) -> bool:
    """Whether code names another trainer in a string (except docstrings), an identifier or an import."""
    tree = ast.parse(source)
    docstrings = {
        id(line.value) for node in ast.walk(tree) for line in ast.iter_child_nodes(node) if isinstance(line, ast.Expr)
    }
    words = (
        value
        for node in ast.walk(tree)
        if id(node) not in docstrings
        for _, field in ast.iter_fields(node)
        for value in (field if isinstance(field, list) else [field])
        if isinstance(value, str)
    )
    return any(_TRAINER.search(word) for word in words)


def test_core_code_names_no_other_trainer() -> None:
    """Strings, names, branches, defaults and lists; docstrings and comments may cite one."""
    named = {
        str(path.relative_to(PACKAGE))
        for path in FILES
        if _TRAINER.search(path.read_text("utf-8")) and names_a_trainer(path.read_text("utf-8"))
    }
    assert {name for name in named if not name.startswith("compat/")} == set()


@pytest.mark.parametrize(
    ("source", "is_named"),
    [
        ('"""As MindONE does."""\nx = 1  # as in EveryDream2', False),
        ('class A:\n    x: int = 1\n    """As Open-Sora-Plan."""', False),
        ('kind = "everydream"', True),
        ("def read_latte(): ...", True),
        ("from a import mindspore", True),
        ("x = f(mindone=1)", True),
        ("flattened = x.flatten()", False),
    ],
)
def test_check_for_names_ignores_docstrings_and_comments(source: str, is_named: bool) -> None:
    assert names_a_trainer(source) is is_named


def test_compat_folders_are_imported_only_by_their_tests() -> None:
    """Tests of a folder of `compat`, and their support code, are in the folder of `tests/compat` with its name. All of
    `tests/compat` may use `kit`."""
    imports = re.compile(r"^\s*(?:from|import) mezzotint\.compat(?:\.(\w+)| import (\w+))", re.MULTILINE)
    wrong = []
    for folder in (ROOT / "tests", ROOT / "tools"):
        for path in folder.rglob("*.py"):
            parts = path.relative_to(folder).parts
            own = {parts[1], "kit"} if folder.name == "tests" and parts[0] == "compat" else set()
            wrong += [
                f"{path.relative_to(ROOT)}: {name}"
                for found in imports.finditer(path.read_text("utf-8"))
                if (name := found[1] or found[2]) not in own
            ]
    assert wrong == []


def test_random_numbers_come_only_from_addresses() -> None:
    # one seeds the generators of libraries, the other keeps the loader of torch from using the global generator
    allowed = (PACKAGE / "runtimes" / "base.py", PACKAGE / "data" / "loading" / "loader.py")
    words = ("np.random.", "numpy.random", "random.random(", "random.shuffle(", "random.choice(", "torch.Generator(")
    uses = [
        f"{path.relative_to(PACKAGE)}: {word}"
        for path in FILES
        if path not in allowed and may_contain(words, path)
        for word in words
        if word in code_of(path)
    ]
    assert uses == []


def may_contain(words: Iterable[str], path: Path) -> bool:
    """Whether a file may contain one of these pieces of code: all names of one are in it."""
    text = path.read_text(encoding="utf-8")
    return any(all(name in text for name in re.findall(r"\w+", word)) for word in words)


@cache
def code_of(path: Path) -> str:
    """The source of a file with all strings emptied."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            node.value = ""
    return ast.unparse(tree)


def test_every_file_has_a_docstring_and_fewer_than_500_lines() -> None:
    complaints = [f"{path.relative_to(PACKAGE)}: {what}" for path in FILES for what in unreadable(path)]
    assert complaints == []


def unreadable(path: Path) -> Iterator[str]:
    if ast.get_docstring(tree_of(path)) is None:
        yield "has no docstring"
    if len(path.read_text(encoding="utf-8").splitlines()) >= 500:
        yield "has 500 lines or more"


def test_names_have_one_meaning_and_functions_exist_once() -> None:
    assert survey().several_meanings(modules()) == {}
    assert survey().bodies_twice(modules()) == []
    for folder, most in (("src", 2), ("tests", 60), ("tools", 0)):
        assert survey().result_names_below(ROOT / folder) <= most, f"name values in {folder} after what they are"
