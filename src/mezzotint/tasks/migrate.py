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
from mezzotint.settings import renamed
from mezzotint.settings.counting import format_count
from mezzotint.settings.reading import yaml_rules
from mezzotint.settings.reading.wording import format_value
from mezzotint.tasks.reading import command_line


@dataclass(frozen=True, slots=True)
class Edit:
    """A replacement in the text. start, end: indices of characters. line: from 1. about: what changes, as the command
    prints it."""

    start: int
    end: int
    text: str
    line: int
    about: str


@dataclass(frozen=True, slots=True)
class Moved:
    """A setting whose new name is in another section. mapping, number: the node that contains it, and its index in it.
    parent: the node that contains `mapping`."""

    path: str
    path_now: str
    mapping: yaml.MappingNode
    number: int
    parent: yaml.MappingNode | None

    @property
    def line(self) -> int:
        """Its line, from 1."""
        return int(self.mapping.value[self.number][0].start_mark.line) + 1


def run(arguments: Sequence[str]) -> int:
    """Rewrites recipes in place: only renamed names and values change, comments and order stay. Prints each change.
    Raises RecipeError for a file that is not a recipe, StorageError if it cannot be written."""
    line = command_line.parse(arguments, "migrate")
    for name in line.plain:
        _migrate_file(Path(name), is_dry="--dry-run" in line)
    return 0


def _migrate_file(path: Path, *, is_dry: bool) -> None:
    text = yaml_rules.read_file(path, str(path))
    yaml_rules.load(text, str(path))  # raises RecipeError with the line for other files
    changes = [(edit.line, edit.about) for edit in find_edits(text)]
    changes += [(entry.line, f"{entry.path} is {entry.path_now}") for entry in find_moved(text)]
    for line, about in sorted(changes):
        print(f"{path}:{line}: {about}")
    if not changes:
        print(f"{path}: nothing to rename")
        return
    migrated = migrate(text)
    if is_dry:
        return
    durable.write_file(Path(os.path.realpath(path)), migrated.encode())
    print(f"{path}: {format_count(len(changes), 'change')} written")


def migrate(text: str) -> str:
    """The text of a recipe with current names. Raises RecipeError E1001 if it has both an old name and its new one, or
    a value of several lines now belongs to another section."""
    text = apply_edits(text, list(find_edits(text)))
    while (entry := next(find_moved(text), None)) is not None:
        text = apply_edits(text, list(_move(text, entry)))
    return text


def find_edits(text: str) -> Iterator[Edit]:
    """Every renamed setting and value in the text of a recipe, in order."""
    yield from _find_edits(_compose(text), "")


def apply_edits(text: str, edits: Sequence[Edit]) -> str:
    """The text with the edits applied. edits: in the order of the text."""
    for edit in reversed(edits):
        text = text[: edit.start] + edit.text + text[edit.end :]
    return text


def find_moved(text: str) -> Iterator[Moved]:
    """Every setting that now belongs to another section."""
    yield from _find_moved(_compose(text), "", None)


def _compose(text: str) -> yaml.MappingNode:
    """The mapping of a whole recipe; empty for a text that is not a mapping."""
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    return root if isinstance(root, yaml.MappingNode) else yaml.MappingNode("tag:yaml.org,2002:map", [])


def _find_moved(node: yaml.MappingNode, section: str, parent: yaml.MappingNode | None) -> Iterator[Moved]:
    for number, (key, value) in enumerate(node.value):
        path = f"{section}.{key.value}" if section else str(key.value)
        path_now = renamed.new_path(path)
        if path_now is not None and _changes_section(section, path_now):
            yield Moved(path, path_now, node, number, parent)
        elif isinstance(value, yaml.MappingNode):
            yield from _find_moved(value, path, node)


def _changes_section(section: str, path_now: str) -> bool:
    return path_now.rpartition(".")[0] != (renamed.new_path(section) or section)


def _move(text: str, entry: Moved) -> Iterator[Edit]:
    """Edits that move an entry into the mapping of its new section, in the order of the text."""
    *sections, name = entry.path_now.split(".")
    target = _compose(text)
    while sections and (inner := _mapping_at(target, sections[0])) is not None:
        target = inner
        del sections[0]
    if not sections and any(key.value == name for key, _ in target.value):
        raise _both_names(entry.line, entry.path, entry.path_now)
    (key, value), mapping = entry.mapping.value[entry.number], entry.mapping
    if value.start_mark.line != key.start_mark.line or value.end_mark.line != key.start_mark.line:
        raise RecipeError(
            f"line {entry.line}: {entry.path} was renamed to {entry.path_now}; move it there", code="E1001"
        )
    is_same = target.start_mark.index == mapping.start_mark.index
    written = f"{name}{text[key.end_mark.index : value.end_mark.index]}"
    others = len(target.value) - is_same
    if target.flow_style:
        for section in reversed(sections):
            written = f"{section}: {{{written}}}"
        insert_at, inserted = target.start_mark.index + 1, written + (", " if others else "")
    else:
        rest = "" if mapping.flow_style else text[value.end_mark.index : _end_of_line(text, value.end_mark.index)]
        first = (key if is_same else target.value[0][0]).start_mark
        lines = [*(f"{section}:" for section in sections), written + rest]
        inserted = "".join(f"{' ' * (first.column + 2 * depth)}{line}\n" for depth, line in enumerate(lines))
        insert_at = first.index - first.column
    edits = [Edit(insert_at, insert_at, inserted, entry.line, ""), _removal(text, entry, leaves_empty=not is_same)]
    yield from sorted(edits, key=lambda edit: (edit.start, edit.end))


def _removal(text: str, entry: Moved, *, leaves_empty: bool) -> Edit:
    """leaves_empty: the mapping may be empty afterwards."""
    mapping, number = entry.mapping, entry.number
    key, value = mapping.value[number]
    start, end = key.start_mark, value.end_mark.index
    if not mapping.flow_style:
        if len(mapping.value) == 1 and leaves_empty and entry.parent is not None:
            start = next(k.start_mark for k, v in entry.parent.value if v is mapping)
        return Edit(start.index - start.column, min(_end_of_line(text, end) + 1, len(text)), "", entry.line, "")
    if number + 1 < len(mapping.value):
        return Edit(start.index, mapping.value[number + 1][0].start_mark.index, "", entry.line, "")
    begin = mapping.value[number - 1][1].end_mark.index if number else start.index
    return Edit(begin, end, "", entry.line, "")


def _mapping_at(node: yaml.MappingNode, name: str) -> yaml.MappingNode | None:
    value = next((value for key, value in node.value if key.value == name), None)
    return value if isinstance(value, yaml.MappingNode) and value.value else None


def _end_of_line(text: str, index: int) -> int:
    end = text.find("\n", index)
    return len(text) if end < 0 else end


def _find_edits(node: yaml.MappingNode, section: str) -> Iterator[Edit]:
    for key, value in node.value:
        path = f"{section}.{key.value}" if section else str(key.value)
        path_now = renamed.new_path(path)
        if path_now is not None and _changes_section(section, path_now):
            continue
        if path_now is not None:
            name = path_now.rpartition(".")[2]
            if name != key.value:
                yield _edit(key, name, f"{path} is {path_now}")
            if any(other.value == name for other, _ in node.value if other is not key):
                raise _both_names(key.start_mark.line + 1, path, path_now)
        if isinstance(value, yaml.MappingNode):
            yield from _find_edits(value, path)
        elif isinstance(value, yaml.ScalarNode):
            old: Any = yaml_rules.scalar(value.value) if value.style is None else value.value
            new = renamed.new_value(path_now or path, old)
            if new != old:
                yield _edit(
                    value,
                    new if isinstance(new, str) else format_value(new),
                    f"{path_now or path}: {format_value(old)} is {format_value(new)}",
                )


def _both_names(line: int, path: str, path_now: str) -> RecipeError:
    return RecipeError(
        f"line {line}: {path} was renamed to {path_now}, and the recipe has both; remove {path}", code="E1001"
    )


def _edit(node: yaml.ScalarNode, text: str, about: str) -> Edit:
    return Edit(node.start_mark.index, node.end_mark.index, text, node.start_mark.line + 1, about)
