"""Operations on captions, as pure functions of the lines of a caption; between a form or a command and the files.

A caption with commas is a list of tags: its parts, stripped.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from mezzotint.errors import DatasetError, did_you_mean

Lines = tuple[str, ...]
"""The lines of one caption: stripped, without empty ones; () for an empty caption."""


@dataclass(frozen=True, slots=True)
class Operation:
    """A change of captions. label: for the history. change: of the lines of one caption. replaces: whether the result
    does not depend on the caption, so that it replaces all alternatives of an image."""

    label: str
    change: Callable[[Lines], Lines]
    replaces: bool = False


KEEP = Operation("keep", lambda lines: lines)
"""Changes nothing."""


def split_tags(text: str) -> list[str]:
    """The tags of a caption, in order, without empty ones."""
    return [tag for tag in map(str.strip, text.split(",")) if tag]


def count_tags(captions: Iterable[str]) -> Counter[str]:
    """In how many captions each tag occurs."""
    return Counter(
        tag for caption in captions for tag in {tag for line in caption.splitlines() for tag in split_tags(line)}
    )


def set_caption(text: str) -> Operation:
    """Replaces the whole caption."""
    lines = tuple(filter(None, map(str.strip, re.split(r"\r\n|\r|\n", text))))
    return Operation("set", lambda _: lines, replaces=True)


def prepend(text: str) -> Operation:
    """Puts a text directly before the caption. A comma or space between them is part of the text."""
    return Operation(
        f"prepend {text!r}", lambda lines: (f"{text}{lines[0]}".strip(), *lines[1:]) if lines else (text.strip(" ,"),)
    )


def append(text: str) -> Operation:
    """Puts a text directly after the caption. A comma or space between them is part of the text."""
    return Operation(
        f"append {text!r}", lambda lines: (*lines[:-1], f"{lines[-1]}{text}".strip()) if lines else (text.strip(" ,"),)
    )


def replace_text(text: str, by: str) -> Operation:
    """Replaces each occurrence of a text, in the same case."""
    return Operation(f"replace {text!r} by {by!r}", lambda lines: _strip(line.replace(text, by) for line in lines))


def add_tag(tag: str, *, at: Literal["end", "start"] = "end") -> Operation:
    """Adds a tag to captions that do not have it."""

    def change(lines: Lines) -> Lines:
        if any(tag in split_tags(line) for line in lines):
            return lines
        if not lines:
            return (tag,)
        if at == "start":
            return (f"{tag}, {lines[0]}", *lines[1:])
        return (*lines[:-1], f"{lines[-1].rstrip(' ,')}, {tag}")

    return Operation(f"add the tag {tag!r}", change)


def remove_tag(tag: str) -> Operation:
    """Removes a tag. Captions without it stay as they are."""
    return Operation(f"remove the tag {tag!r}", lambda lines: _strip(_without(line, tag) for line in lines))


def rename_tag(tag: str, to: str) -> Operation:
    """Replaces a tag by another at its place; a caption that has both keeps the first."""

    def rename(line: str) -> str:
        tags = split_tags(line)
        return ", ".join(dict.fromkeys(to if one == tag else one for one in tags)) if tag in tags else line

    return Operation(f"replace the tag {tag!r} by {to!r}", lambda lines: _strip(map(rename, lines)))


def put_first(trigger: str) -> Operation:
    """Puts a trigger word first, as a tag; removes it elsewhere in the list."""

    def change(lines: Lines) -> Lines:
        if (
            lines
            and split_tags(lines[0])[:1] == [trigger]
            and sum(split_tags(line).count(trigger) for line in lines) == 1
        ):
            return lines
        rest = _strip(_without(line, trigger) for line in lines)
        return (f"{trigger}, {rest[0]}", *rest[1:]) if rest else (trigger,)

    return Operation(f"put {trigger!r} first", change)


def sort_tags(counts: Mapping[str, int] | None = None, *, keep: int = 0) -> Operation:
    """Sorts tags: the most frequent first, or alphabetically without counts. keep: number of first tags that stay."""

    def key(tag: str) -> tuple[int, str]:
        return (0 if counts is None else -counts.get(tag, 0), tag.casefold())

    def sort(line: str) -> str:
        tags = split_tags(line)
        in_order = [*tags[:keep], *sorted(tags[keep:], key=key)]
        return line if in_order == tags else ", ".join(in_order)

    by = "alphabet" if counts is None else "frequency"
    return Operation(f"sort tags by {by}", lambda lines: tuple(map(sort, lines)))


def _without(line: str, tag: str) -> str:
    tags = split_tags(line)
    return ", ".join(one for one in tags if one != tag) if tag in tags else line


def _strip(lines: Iterable[str]) -> Lines:
    return tuple(filter(None, map(str.strip, lines)))


_KINDS: dict[str, tuple[tuple[str, ...], Callable[..., Operation]]] = {
    "set": (("text",), set_caption),
    "prepend": (("text",), prepend),
    "append": (("text",), append),
    "replace": (("text", "by"), replace_text),
    "add-tag": (("tag",), add_tag),
    "add-tag-first": (("tag",), lambda tag: add_tag(tag, at="start")),
    "remove-tag": (("tag",), remove_tag),
    "rename-tag": (("tag", "to"), rename_tag),
    "trigger": (("tag",), put_first),
    "sort-alphabet": (("keep",), lambda keep: sort_tags(keep=keep)),
    "sort-frequency": (("keep",), sort_tags),
}
"""Operations by name, with the values that each needs; `sort-frequency` also needs the counts."""

_MAY_BE_EMPTY = (("set", "text"), ("replace", "by"))


def parse_operation(value: Mapping[str, Any], count: Callable[[], Mapping[str, int]]) -> Operation:
    """The operation of a form: `{"kind": "rename-tag", "tag": "cat", "to": "fox"}`. count: counts the tags of the
    selected captions. Raises DatasetError E1260 for anything else."""
    kind = str(value.get("kind", ""))
    if kind not in _KINDS:
        raise DatasetError(
            f"there is no operation {kind!r}; {did_you_mean(kind, _KINDS, 'try set or append')}", code="E1260"
        )
    names, create = _KINDS[kind]
    values = [
        _parse_number(value.get(name)) if name == "keep" else _parse_text(kind, name, value.get(name)) for name in names
    ]
    return create(count(), keep=values[0]) if kind == "sort-frequency" else create(*values)


def _parse_number(value: Any) -> int:
    text = str(value if value is not None else "0").strip() or "0"
    if not (text.isascii() and text.isdecimal() and len(text) < 6):
        raise DatasetError(f"the number of tags that stay is a whole number, got {text[:80]!r}", code="E1260")
    return int(text)


def _parse_text(kind: str, name: str, field: Any) -> str:
    value = field if isinstance(field, str) else None
    if value is None or (not value.strip() and (kind, name) not in _MAY_BE_EMPTY):
        raise DatasetError(f"{kind} needs a text for {name}", code="E1260")
    if kind != "set" and re.search(r"[\r\n]", value):
        raise DatasetError(f"{kind}: {name} must be one line", code="E1260")
    if name in ("tag", "to"):
        value = value.strip()
        if "," in value:
            raise DatasetError(
                f"{kind}: {value!r} contains a comma, which separates tags; change one tag at a time", code="E1260"
            )
    return value
