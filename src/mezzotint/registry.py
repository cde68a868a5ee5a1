"""A folder is a registry: `find("families", "sdxl")` imports `mezzotint.families.sdxl`. To add a choice is to add a
file, or a folder whose `__init__` imports what the choice offers.

No list has to be kept: what is a module in the folder can be chosen; `base`, `shared` and names with an underscore
cannot. A folder whose `__init__` offers nothing is a group: `dialects/diffusers/sdxl.py` is the choice
`diffusers-sdxl`. Such a folder inside a group is a room of it and adds no word:
`dialects/diffusers/flow/dreambooth_sd3.py` is `diffusers-dreambooth-sd3`.

Other installed packages bring choices by entry points: of the group `mezzotint.families`, `.formats`, `.dialects`,
`.optimizers` or `.callbacks`, and of `mezzotint.recipe.families`, `.formats` or `.optimizers` for the files without
torch. Their names are read from the package's metadata; nothing of it is imported before a recipe names it.
"""

from __future__ import annotations

import ast
import contextlib
import importlib
import importlib.metadata
import importlib.util
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import ModuleType

from mezzotint.errors import RecipeError, did_you_mean

_HERE = Path(__file__).parent
_NO_CHOICES = ("base", "shared")


def names(folder: str, *, at_hand: bool = False) -> tuple[str, ...]:
    """The choices in a folder of the package ("families", "data/formats", "runtimes", "weights/layouts", "dialects"),
    sorted. at_hand: of those that other packages bring only the ones that have been imported already.

    Nothing is imported. A name is written with hyphens where its module has underscores.
    """
    choices = _choices(folder).items()
    return tuple(sorted(name for name, one in choices if not (at_hand and one.origin) or one.module in sys.modules))


def about(folder: str) -> dict[str, str]:
    """What each choice in a folder is, by name: the head of its module's docstring up to the first full stop,
    semicolon or colon, without the words that name it; or the package that brings it, and whether its module is there.
    Nothing is imported."""
    return {name: choice.about() for name, choice in sorted(_choices(folder).items())}


def find(folder: str, name: str) -> ModuleType:
    """Imports the module behind a choice. Raises RecipeError E1010 with the nearest name when there is none, E1163
    where another package brings it and cannot be imported."""
    choice = _choices(folder).get(name.replace("_", "-"))
    if choice is None:
        raise RecipeError(unknown(folder, name), code="E1010")
    if not choice.origin:
        return importlib.import_module(choice.module)
    try:
        with contextlib.redirect_stdout(sys.stderr):  # what it prints is no part of a command's output
            return importlib.import_module(choice.module)
    except (Exception, SystemExit) as error:  # whatever a stranger's module raises
        raise RecipeError(
            f"{name} comes from the package {choice.origin}, and its module {choice.module} cannot be imported "
            f"({type(error).__name__}: {error}); update or remove that package",
            code="E1163",
        ) from error


def unknown(folder: str, name: str) -> str:
    """The sentence for a name that a folder does not know."""
    known = names(folder)
    hint = did_you_mean(name, known, f"known: {', '.join(known) or 'none'}")
    return f"there is no {name!r} among {folder.split('/')[-1]}; {hint}"


@dataclass(frozen=True, slots=True)
class _Choice:
    """A module that can be chosen. module: its dotted name. path: its file, None where another package brings it;
    origin: that package and its version, "" for our own."""

    module: str
    path: Path | None
    origin: str = ""

    def about(self) -> str:
        """What it is, in some words."""
        if self.path is not None:
            return _head(self.path)
        top = self.module.partition(".")[0]
        missing = "" if importlib.util.find_spec(top) is not None else f", whose module {top} is not there"
        return f"from the package {self.origin}{missing}"


def _choices(folder: str) -> dict[str, _Choice]:
    """What can be chosen, by name: of the folder, and of other packages."""
    package = ".".join(("mezzotint", *folder.split("/")))
    group = package.replace("mezzotint.data.", "mezzotint.").replace("mezzotint.training.", "mezzotint.")
    return _of_packages(group, tuple(sys.path)) | _of_folder(_HERE / folder, package)


@lru_cache(maxsize=64)
def _of_folder(folder: Path, package: str) -> dict[str, _Choice]:
    """The choices of a folder by name. The folder is listed once in a process."""
    choices: dict[str, _Choice] = {}
    for name, choice in _modules(folder, package):
        assert choice.path is not None
        if choice.path.name != "__init__.py" or _offers(choice.path):
            choices[name] = choice
        else:
            choices |= {f"{name}-{word}": inner for word, inner in _of_group(choice.path.parent, choice.module)}
    return choices


def _of_group(folder: Path, package: str) -> Iterator[tuple[str, _Choice]]:
    """The choices of a group by the words behind its name, those of its rooms among them."""
    for word, choice in _modules(folder, package):
        assert choice.path is not None
        if choice.path.name != "__init__.py" or _offers(choice.path):
            yield word, choice
        else:
            yield from _of_group(choice.path.parent, choice.module)


@lru_cache(maxsize=64)
def _of_packages(group: str, _path: tuple[str, ...]) -> dict[str, _Choice]:
    """What installed packages bring to a group, by name. _path: where Python looks, so that it is asked once."""
    choices = {}
    for point in importlib.metadata.entry_points(group=group):
        origin = f"{point.dist.name} {point.dist.version}" if point.dist is not None else point.module
        choices[point.name.replace("_", "-")] = _Choice(point.module, None, origin)
    return choices


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
