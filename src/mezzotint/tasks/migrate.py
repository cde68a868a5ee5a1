"""`mezzotint migrate RECIPE`: rewrites settings and values of a recipe that had other names in earlier commits."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from mezzotint import durable
from mezzotint.errors import RecipeError
from mezzotint.recipe import renamed
from mezzotint.recipe.counting import counted
from mezzotint.recipe.reading import yaml_rules
from mezzotint.recipe.reading.wording import shown
from mezzotint.tasks.reading import words


@dataclass(frozen=True, slots=True)
class Edit:
    """A piece of the text that is replaced. start, end: indices of characters. line: from 1. about: what changes, as
    the command prints it."""

    start: int
    end: int
    text: str
    line: int
    about: str


def run(arguments: Sequence[str]) -> int:
    """Rewrites recipes in place: only renamed names and values change, comments and order stay. Prints each change.
    Raises RecipeError for a file that is no recipe, StorageError when it cannot be written."""
    line = words.parse(arguments, "migrate")
    for name in line.plain:
        _migrate_file(Path(name), is_dry="--dry-run" in line)
    return 0


def _migrate_file(path: Path, *, is_dry: bool) -> None:
    text = yaml_rules.read_file(path, str(path))
    yaml_rules.load(text, str(path))  # raises RecipeError for what is no recipe, with the line
    edits = list(find_edits(text))
    for edit in edits:
        print(f"{path}:{edit.line}: {edit.about}")
    if not edits:
        print(f"{path}: nothing to rename")
        return
    if is_dry:
        return
    durable.write_file(Path(os.path.realpath(path)), apply_edits(text, edits).encode())
    print(f"{path}: {counted(len(edits), 'change')} written")


def migrate(text: str) -> str:
    """The text of a recipe with the names of today."""
    return apply_edits(text, list(find_edits(text)))


def find_edits(text: str) -> Iterator[Edit]:
    """Every renamed setting and value in the text of a recipe, in its order."""
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    if isinstance(root, yaml.MappingNode):
        yield from _in_mapping(root, "")


def apply_edits(text: str, edits: Sequence[Edit]) -> str:
    """The text with the pieces replaced. edits: in the order of the text."""
    for edit in reversed(edits):
        text = text[: edit.start] + edit.text + text[edit.end :]
    return text


def _in_mapping(node: yaml.MappingNode, section: str) -> Iterator[Edit]:
    for key, value in node.value:
        path = f"{section}.{key.value}" if section else str(key.value)
        path_now = renamed.new_path(path)
        if path_now is not None:
            name = path_now.rpartition(".")[2]
            if name != key.value:
                yield _edit(key, name, f"{path} is {path_now}")
            if any(other.value == name for other, _ in node.value if other is not key):
                raise RecipeError(
                    f"line {key.start_mark.line + 1}: {path} is called {path_now} now, which stands beside it; remove "
                    "one of them",
                    code="E1001",
                )
        if isinstance(value, yaml.MappingNode):
            yield from _in_mapping(value, path)
        elif isinstance(value, yaml.ScalarNode):
            old: Any = yaml_rules.scalar(value.value) if value.style is None else value.value
            new = renamed.new_value(path_now or path, old)
            if new != old:
                yield _edit(
                    value,
                    new if isinstance(new, str) else shown(new),
                    f"{path_now or path}: {shown(old)} is {shown(new)}",
                )


def _edit(node: yaml.ScalarNode, text: str, about: str) -> Edit:
    return Edit(node.start_mark.index, node.end_mark.index, text, node.start_mark.line + 1, about)
