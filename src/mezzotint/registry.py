"""A folder is a registry: `find("families", "sdxl")` imports `mezzotint.families.sdxl`. To add a choice is to add a
file.

No list has to be kept: what is a module in the folder can be chosen, `base` and names with an underscore excepted.
"""

from __future__ import annotations

import ast
import difflib
import importlib
import pkgutil
import re
from pathlib import Path
from types import ModuleType

from mezzotint.errors import RecipeError

_HERE = Path(__file__).parent


def names(folder: str) -> tuple[str, ...]:
    """The choices in a folder of the package ("families", "data/formats", "runtimes", "weights/layouts", "dialects"),
    sorted.

    Looks at file names only; nothing is imported. A name is written with hyphens where its module has underscores.
    """
    found = pkgutil.iter_modules([str(_HERE / folder)])
    return tuple(sorted(m.name.replace("_", "-") for m in found if m.name != "base" and not m.name.startswith("_")))


def about(folder: str) -> dict[str, str]:
    """What each choice in a folder is, by name: the head of its module's docstring up to the first full stop,
    semicolon or colon, without the words that name it. Nothing is imported."""
    return {name: _head(_HERE / folder / f"{name.replace('-', '_')}.py") for name in names(folder)}


def _head(path: Path) -> str:
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) if path.is_file() else None
    first = " ".join((docstring or "").partition("\n\n")[0].split())
    named = re.sub(r"^The \w+ `[\w-]+`: ", "", re.sub(r" \([^()]*arXiv:[^()]*\)", "", first))
    return re.split(r"[;:](?=\s)|\.(?=\s|$)", named, maxsplit=1)[0]


def find(folder: str, name: str) -> ModuleType:
    """Imports the module behind a choice. Raises RecipeError E1010 with the nearest name when there is none."""
    known = names(folder)
    if name.replace("_", "-") not in known:
        raise RecipeError(unknown(folder, name), code="E1010")
    path = f"mezzotint.{folder.replace('/', '.')}.{name.replace('-', '_')}"
    return importlib.import_module(path)


def unknown(folder: str, name: str) -> str:
    """The sentence for a name that a folder does not know."""
    known = names(folder)
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(known) or 'none'}"
    return f"there is no {name!r} among {folder.split('/')[-1]}; {hint}"
