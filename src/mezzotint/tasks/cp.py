"""`mezzotint cp NAME [DESTINATION]`: copies a shipped recipe. Existing files are not overwritten."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from mezzotint import durable
from mezzotint.assets import ASSETS
from mezzotint.errors import RecipeError, StorageError, did_you_mean
from mezzotint.settings.reading.read import SCHEMA_COMMENT, shipped_recipes
from mezzotint.tasks.reading import command_line
from mezzotint.tasks.reading.commands import REPLACE


def run(arguments: Sequence[str]) -> int:
    """Copies a shipped recipe and prints where it is.

    Raises RecipeError: E1012 for a wrong number of words, E1011 for an unknown name, E1014 for an existing file;
    StorageError E1701 if the destination cannot be written. Missing folders are created.
    """
    line = command_line.parse(arguments, "cp")
    name, *destination = line.plain
    source = find_shipped(name)
    target = _target(source, *destination)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(f"{target.parent}: the folder cannot be created: {error.strerror}", code="E1701") from None
    try:
        durable.write_new(
            target, _text(source), replaces=REPLACE.name in line,
            remedy=f"give another name: mezzotint cp {source.stem} NAME.yaml",
        )  # fmt: skip
    except OSError as error:
        raise StorageError(f"{target} cannot be written: {error.strerror}; give another path", code="E1701") from None
    print(f"{target} is written, for you to edit; next: mezzotint check {target}")
    return 0


def find_shipped(name: str) -> Path:
    """The file of a shipped recipe. Raises RecipeError for an unknown name."""
    recipes = shipped_recipes()
    normalized_name = name.removesuffix(".yaml").replace("-", "_")
    for stem, path in recipes.items():
        if stem.replace("-", "_") == normalized_name:
            return path
    hint = did_you_mean(normalized_name, recipes, f"shipped recipes: {', '.join(recipes) or 'none'}")
    raise RecipeError(f"no recipe {name} ships with Mezzotint; {hint}", code="E1011")


def _text(source: Path) -> str:
    """The recipe, with the path in its schema comment made absolute."""
    text = source.read_text(encoding="utf-8")
    first, newline, rest = text.partition("\n")
    target = first.removeprefix(SCHEMA_COMMENT)
    if not first.startswith(SCHEMA_COMMENT) or "://" in target:
        return text
    for schema in ((source.parent / target).resolve(), ASSETS / "recipe.schema.json"):
        if schema.is_file():
            return f"{SCHEMA_COMMENT}{schema}{newline}{rest}"
    return text


def _target(source: Path, destination: str = "") -> Path:
    if not destination:
        return Path(source.name)
    target = Path(destination).expanduser()
    if target.is_dir() or destination.endswith("/"):
        return target / source.name
    return target
