"""A folder is a registry: `find("families", "sdxl")` imports `mezzotint.families.sdxl`. To add a choice is to add a
file, or a folder whose `__init__` imports what the choice offers.

No list has to be kept: what is a module in the folder can be chosen; `base`, `shared` and names with an underscore
cannot. A folder whose `__init__` offers nothing is a group: `dialects/diffusers/sdxl.py` is the choice
`diffusers-sdxl`.
"""

from __future__ import annotations

import ast
import difflib
import importlib
import re
from pathlib import Path
from types import ModuleType

from mezzotint.errors import RecipeError

_HERE = Path(__file__).parent
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
    return dict(sorted((outside | {name: _head(path) for name, path in _choices(folder).items()}).items()))


def find(folder: str, name: str) -> ModuleType:
    """Imports the module behind a choice. Raises RecipeError E1010 with the nearest name when there is none."""
    path = _choices(folder).get(name.replace("_", "-"))
    if path is None and (module := _OUTSIDE.get(folder, {}).get(name.replace("_", "-"))) is not None:
        return importlib.import_module(module)
    if path is None:
        raise RecipeError(unknown(folder, name), code="E1010")
    where = path.parent if path.name == "__init__.py" else path.with_suffix("")
    return importlib.import_module(".".join(("mezzotint", *where.relative_to(_HERE).parts)))


def unknown(folder: str, name: str) -> str:
    """The sentence for a name that a folder does not know."""
    known = names(folder)
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(known) or 'none'}"
    return f"there is no {name!r} among {folder.split('/')[-1]}; {hint}"


def _choices(folder: str) -> dict[str, Path]:
    """The file of each choice, by name."""
    choices: dict[str, Path] = {}
    for name, path in _modules(_HERE / folder):
        if path.name != "__init__.py" or _offers(path):
            choices[name] = path
        else:
            choices |= {f"{name}-{inner}": file for inner, file in _modules(path.parent)}
    return choices


def _modules(folder: Path) -> list[tuple[str, Path]]:
    """Names and files of the modules and packages in a folder that are not private."""
    paths = [*folder.glob("*.py"), *folder.glob("*/__init__.py")]
    named = [(path.parent.name if path.name == "__init__.py" else path.stem, path) for path in paths]
    return [
        (name.replace("_", "-"), path)
        for name, path in named
        if path != folder / "__init__.py" and name not in _NO_CHOICES and not name.startswith("_")
    ]


def _offers(init: Path) -> bool:
    """Whether a package imports anything that others may use."""
    return any(isinstance(node, ast.ImportFrom) for node in ast.parse(init.read_text(encoding="utf-8")).body)


def _head(path: Path) -> str:
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
    first = " ".join((docstring or "").partition("\n\n")[0].split())
    named = re.sub(r"^The \w+ `[\w-]+`: ", "", re.sub(r" \([^()]*arXiv:[^()]*\)", "", first))
    return re.split(r"[;:](?=\s)|\.(?=\s|$)", named, maxsplit=1)[0]
