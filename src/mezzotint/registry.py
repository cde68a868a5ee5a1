"""A folder is a registry: `find("families", "sdxl")` imports `mezzotint.families.sdxl`. To add a choice is to add a
file, or a folder whose `__init__` imports what the choice offers; it may lie in any place that the package's
`__path__` names.

No list has to be kept: what is a module in the folder can be chosen; `base`, `shared` and names with an underscore
cannot. A folder whose `__init__` offers nothing is a group: `dialects/diffusers/sdxl.py` is the choice
`diffusers-sdxl`.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from mezzotint.errors import RecipeError, did_you_mean

_NO_CHOICES = ("base", "shared")
_OUTSIDE: dict[str, dict[str, str]] = {}


def add(folder: str, name: str, module: str) -> None:
    """Lets a choice come from outside of the package: `module` is imported when `name` is asked for. One that is in
    the folder comes first."""
    _OUTSIDE.setdefault(folder, {})[name] = module


def names(folder: str) -> tuple[str, ...]:
    """The choices in a folder of the package ("families", "data/formats", "runtimes", "weights/layouts", "dialects"),
    sorted.

    Nothing is imported. A name is written with hyphens where its module has underscores.
    """
    return tuple(sorted({*_choices(folder), *_OUTSIDE.get(folder, ())}))


def about(folder: str) -> dict[str, str]:
    """What each choice in a folder is, by name: the head of its module's docstring up to the first full stop,
    semicolon or colon, without the words that name it. Nothing is imported."""
    outside = {name: f"from {module}" for name, module in _OUTSIDE.get(folder, {}).items()}
    return dict(sorted((outside | {name: _head(choice.path) for name, choice in _choices(folder).items()}).items()))


def find(folder: str, name: str) -> ModuleType:
    """Imports the module behind a choice. Raises RecipeError E1010 with the nearest name when there is none."""
    choice = _choices(folder).get(name.replace("_", "-"))
    if choice is None and (module := _OUTSIDE.get(folder, {}).get(name.replace("_", "-"))) is not None:
        return importlib.import_module(module)
    if choice is None:
        raise RecipeError(unknown(folder, name), code="E1010")
    return importlib.import_module(choice.module)


def unknown(folder: str, name: str) -> str:
    """The sentence for a name that a folder does not know."""
    known = names(folder)
    hint = did_you_mean(name, known, f"known: {', '.join(known) or 'none'}")
    return f"there is no {name!r} among {folder.split('/')[-1]}; {hint}"


@dataclass(frozen=True, slots=True)
class _Choice:
    """A module that can be chosen. module: its dotted name."""

    module: str
    path: Path


def _choices(folder: str) -> dict[str, _Choice]:
    """What can be chosen, by name: of the folder, and of whatever else its package's `__path__` names."""
    package = ".".join(("mezzotint", *folder.split("/")))
    choices: dict[str, _Choice] = {}
    for place in _places(package):
        for name, choice in _modules(Path(place), package):
            if choice.path.name != "__init__.py" or _offers(choice.path):
                choices.setdefault(name, choice)
            else:
                choices |= {f"{name}-{word}": inner for word, inner in _modules(choice.path.parent, choice.module)}
    return choices


def _places(package: str) -> Sequence[str]:
    """The folders that make a package; none where there is no such package. Only the packages around it are imported,
    which hold nothing."""
    try:
        spec = importlib.util.find_spec(package)
    except ModuleNotFoundError:
        return ()
    return spec.submodule_search_locations or () if spec is not None else ()


def _modules(folder: Path, package: str) -> list[tuple[str, _Choice]]:
    """The modules and packages in a folder that are not private, by name."""
    paths = [*folder.glob("*.py"), *folder.glob("*/__init__.py")]
    stems = [(path.parent.name if path.name == "__init__.py" else path.stem, path) for path in paths]
    return [
        (stem.replace("_", "-"), _Choice(f"{package}.{stem}", path))
        for stem, path in stems
        if path != folder / "__init__.py" and stem not in _NO_CHOICES and not stem.startswith("_")
    ]


def _offers(init: Path) -> bool:
    """Whether a package imports anything that others may use."""
    return any(isinstance(node, ast.ImportFrom) for node in ast.parse(init.read_text(encoding="utf-8")).body)


def _head(path: Path) -> str:
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
    first = " ".join((docstring or "").partition("\n\n")[0].split())
    named = re.sub(r"^The \w+ `[\w-]+`: ", "", re.sub(r" \([^()]*arXiv:[^()]*\)", "", first))
    return re.split(r"[;:](?=\s)|\.(?=\s|$)", named, maxsplit=1)[0]
