"""Choices by name: `find("families", "sdxl")` imports `mezzotint.families.sdxl`. There are no lists to maintain.

A folder of the package is a list of choices: every module in it is one, and every folder whose `__init__` imports
something, except `base`, `shared` and names with an underscore. To add a choice, add a file.

Folders in `compat/` and other installed packages add choices through entry points: groups `mezzotint.families`,
`.formats`, `.dialects`, `.optimizers` and `.callbacks`, and `mezzotint.settings.families`, `.formats` and `.optimizers`
for the modules without torch; smaller groups are documented where they are read, such as `weights/files/formats.py`. An
installed package declares them in its metadata, a folder of `compat/` in the dictionary `ENTRY_POINTS` of its
`__init__`: `{group: {name: module}}`. A module is imported when a recipe names it.
"""

from __future__ import annotations

import ast
import contextlib
import importlib
import importlib.metadata
import importlib.util
import re
import sys
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import ModuleType

from mezzotint.errors import RecipeError, did_you_mean

_ROOT = Path(__file__).parent
_NO_CHOICES = ("base", "shared")


def names(folder: str, *, skip_unimported: bool = False) -> tuple[str, ...]:
    """The choices of a kind ("families", "data/formats", "runtimes", "weights/layouts", "dialects"), sorted.
    skip_unimported: without those of other installed packages whose modules are not imported yet.

    Nothing is imported. A name has hyphens for the underscores of its module.
    """
    choices = _choices(folder).items()
    skipped = {name for name, choice in choices if choice.origin and choice.module not in sys.modules}
    return tuple(sorted(name for name, _ in choices if not (skip_unimported and name in skipped)))


def about(folder: str) -> dict[str, str]:
    """The description of each choice of a kind, by name: the start of its module's docstring up to the first full stop,
    semicolon or colon, without the words that name it; or the package it comes from, and whether its module can be
    found. Nothing is imported."""
    return {name: choice.about() for name, choice in sorted(_choices(folder).items())}


def find(folder: str, name: str) -> ModuleType:
    """Imports the module of a choice. Raises RecipeError E1010 with the nearest name for an unknown one, E1163 if it
    comes from another package and cannot be imported."""
    choice = _choices(folder).get(name.replace("_", "-"))
    if choice is None:
        raise RecipeError(unknown_choice(folder, name), code="E1010")
    if not choice.origin:
        return importlib.import_module(choice.module)
    try:
        with contextlib.redirect_stdout(sys.stderr):  # its output is not part of a command's output
            return importlib.import_module(choice.module)
    except (Exception, SystemExit) as error:  # whatever a module of another package raises
        raise RecipeError(
            f"{name} comes from the package {choice.origin}, and its module {choice.module} cannot be imported "
            f"({type(error).__name__}: {error}); update or remove that package",
            code="E1163",
        ) from error


def unknown_choice(folder: str, name: str) -> str:
    """The message for a name that is not among the choices of a kind."""
    choices = names(folder)
    hint = did_you_mean(name, choices, f"known: {', '.join(choices) or 'none'}")
    return f"there is no {name!r} among {folder.split('/')[-1]}; {hint}"


@dataclass(frozen=True, slots=True)
class _Choice:
    """A module that can be chosen. module: its dotted name. path: its file, None for another package. origin: that
    package and its version, "" for our own."""

    module: str
    path: Path | None
    origin: str = ""

    def about(self) -> str:
        if self.path is not None:
            return _summarize(self.path)
        top = self.module.partition(".")[0]
        missing = "" if importlib.util.find_spec(top) is not None else f", whose module {top} is missing"
        return f"from the package {self.origin}{missing}"


def _choices(folder: str) -> dict[str, _Choice]:
    """Every choice of a kind by name. For repeated names the core has precedence over `compat/`, and that over other
    packages."""
    package = ".".join(("mezzotint", *folder.split("/")))
    group = package.replace("mezzotint.data.", "mezzotint.").replace("mezzotint.training.", "mezzotint.")
    return (
        _choices_in_packages(group, tuple(sys.path))
        | _choices_in_compat(group, _ROOT)
        | _choices_in_folder(_ROOT / folder, package)
    )


@lru_cache(maxsize=64)
def _choices_in_folder(folder: Path, package: str) -> dict[str, _Choice]:
    """The choices in a folder by name. The folder is listed once per process."""
    paths = [*folder.glob("*.py"), *(init for init in folder.glob("*/__init__.py") if _has_imports(init))]
    stems = [(path.parent.name if path.name == "__init__.py" else path.stem, path) for path in paths]
    return {
        stem.replace("_", "-"): _Choice(f"{package}.{stem}", path)
        for stem, path in stems
        if path != folder / "__init__.py" and stem not in _NO_CHOICES and not stem.startswith("_")
    }


@lru_cache(maxsize=64)
def _choices_in_compat(group: str, root: Path) -> dict[str, _Choice]:
    """The choices that folders of `compat/` add to a group, by name."""
    choices = {}
    for init in sorted(root.glob("compat/*/__init__.py")):
        folder = importlib.import_module(f"mezzotint.compat.{init.parent.name}")
        for name, module in getattr(folder, "ENTRY_POINTS", {}).get(group, {}).items():
            choices[name] = _Choice(module, root.joinpath(*module.split(".")[1:]).with_suffix(".py"))
    return choices


@lru_cache(maxsize=64)
def _choices_in_packages(group: str, _path: tuple[str, ...]) -> dict[str, _Choice]:
    """The choices that other installed packages add to a group, by name. _path: `sys.path`, which the cache depends
    on."""
    choices = {}
    for point in importlib.metadata.entry_points(group=group):
        origin = f"{point.dist.name} {point.dist.version}" if point.dist is not None else point.module
        choices[point.name.replace("_", "-")] = _Choice(point.module, None, origin)
    return choices


def _has_imports(init: Path) -> bool:
    """Whether a package's `__init__` imports anything for others to use."""
    return any(isinstance(node, ast.ImportFrom) for node in ast.parse(init.read_text(encoding="utf-8")).body)


def _summarize(path: Path) -> str:
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
    first = " ".join((docstring or "").partition("\n\n")[0].split())
    named = re.sub(r"^The \w+ `[\w-]+`: ", "", re.sub(r" \([^()]*arXiv:[^()]*\)", "", first))
    return re.split(r"[;:](?=\s)|\.(?=\s|$)", named, maxsplit=1)[0]
