"""Every setting of a recipe by its dotted path: its type, values and help.

Reading, overrides, suggestions and the reference all use this list, which is derived from the sections.
"""

from __future__ import annotations

import functools
import re
import types
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal, TypeGuard, Union, get_args, get_origin

from pydantic import BeforeValidator
from pydantic.fields import FieldInfo

from mezzotint import registry
from mezzotint.settings.base import ChangeKind, Section, as_intervals, as_list, change_of
from mezzotint.settings.families import base as families
from mezzotint.settings.formats import base as formats
from mezzotint.settings.recipe import Recipe
from mezzotint.settings.sections.data import DataSettings
from mezzotint.settings.sections.model import ModelSettings


@dataclass(frozen=True, slots=True)
class Setting:
    """One leaf of the recipe. path: dotted, by alias. shape: its type without marks. help: its docstring, on one line.
    default: as JSON. section: the class that has it."""

    path: str
    shape: Shape
    help: str
    default: Any
    change: ChangeKind
    section: type[Section]
    field: str

    @property
    def name(self) -> str:
        """The last word of the path."""
        return self.path.rpartition(".")[2]


@dataclass(frozen=True, slots=True)
class Shape:
    """A type as recipes see it: without None and marks, the marks (`Ge(0)` …), and whether null is allowed."""

    base: Any
    marks: tuple[Any, ...] = ()
    nullable: bool = False

    @property
    def one_for_many(self) -> bool:
        """Whether a single value may be written for a list."""
        return any(isinstance(mark, BeforeValidator) and mark.func in (as_list, as_intervals) for mark in self.marks)

    @property
    def is_list(self) -> bool:
        return get_origin(self.base) in (tuple, list)

    @property
    def is_map(self) -> bool:
        return get_origin(self.base) is dict

    @property
    def is_text(self) -> bool:
        """Whether it is only text: `42` on a command line stays a text."""
        return self.base in (str, Path)

    @property
    def choices(self) -> tuple[str, ...]:
        """The values of a closed choice, or ()."""
        if get_origin(self.base) is not Literal:
            return ()
        return tuple(str(choice) for choice in get_args(self.base))

    def item(self, index: int) -> Shape:
        """The shape of an entry of a list, or of every value of a map."""
        inner = get_args(self.base)
        if self.is_map:
            return shape_of(inner[1])
        if len(inner) == 2 and inner[1] is Ellipsis:
            return shape_of(inner[0])
        return shape_of(inner[min(index, len(inner) - 1)])


def shape_of(annotation: Any, marks: tuple[Any, ...] = ()) -> Shape:
    """Removes marks and None from an annotation."""
    nullable = False
    while True:
        origin = get_origin(annotation)
        if origin is Annotated:
            annotation, *inner = get_args(annotation)
            marks = (*inner, *marks)
        elif origin in (Union, types.UnionType) and type(None) in get_args(annotation):
            rest = tuple(a for a in get_args(annotation) if a is not type(None))
            nullable = True
            annotation = rest[0] if len(rest) == 1 else Union[rest]  # noqa: UP007 (built at run time)
        else:
            return Shape(annotation, marks, nullable)


def sections_in(annotation: Any) -> tuple[type[Section], ...]:
    """The section classes that an annotation allows: none for a leaf, several for a choice such as the optimizer."""
    base = shape_of(annotation).base
    options = get_args(base) if get_origin(base) in (Union, types.UnionType) else (base,)
    return tuple(o for o in options if isinstance(o, type) and issubclass(o, Section))


def word_of(name: str, info: FieldInfo) -> str:
    """The name of a field in a recipe."""
    return info.alias or name


@functools.cache
def settings() -> tuple[Setting, ...]:
    """Every leaf setting, in the order of the sections. If several classes define one path, the first one is used;
    discriminators such as `optim.optimizer.kind` have the choices of all."""
    seen: dict[str, Setting] = {}
    for setting in _walk(Recipe, "", Recipe().model_dump(mode="json", by_alias=True)):
        first = seen.setdefault(setting.path, setting)
        if first.shape.choices and first.shape.choices != setting.shape.choices:
            both = tuple(dict.fromkeys((*first.shape.choices, *setting.shape.choices)))
            seen[setting.path] = replace(first, shape=replace(first.shape, base=Literal[both]))
    return tuple(seen.values())


@functools.cache
def sections() -> dict[str, str]:
    """Every section by dotted path, with its field's help."""
    return dict(_walk_sections(Recipe, ""))


@functools.cache
def by_path() -> dict[str, Setting]:
    """`settings` by dotted path."""
    return {setting.path: setting for setting in settings()}


def open_families(names: Iterable[str]) -> None:
    """Adds the sections of families from other packages when a recipe names them."""
    for name in set(names) & set(registry.names(families.FOLDER)):
        spec = families.family_spec(name)
        _open("model", ModelSettings, spec.section, spec.settings)


def open_formats(names: Iterable[str]) -> None:
    """The same for data formats."""
    for name in set(names) & set(registry.names(formats.FOLDER)):
        kind = formats.format_spec(name).settings
        _open("data", DataSettings, formats.section_of(name), kind)


def _open(section: str, parent: type[Section], name: str, kind: type[Section] | None) -> None:
    field = parent.model_fields.get(name)
    if kind is not None and (field is None or field.annotation is not kind):
        parent.add_section(name, kind)
        Recipe.model_fields[section].default = parent()
        Recipe.model_rebuild(force=True)
        for cached in (settings, sections, by_path):
            cached.cache_clear()


def owner(path: str) -> tuple[Setting, tuple[str, ...]] | None:
    """The setting at or above a path, and the rest of the path: list indices and map keys. None if there is no such
    setting."""
    keys = path.split(".")
    for end in range(len(keys), 0, -1):
        setting = by_path().get(".".join(keys[:end]))
        if setting is not None:
            return setting, tuple(keys[end:])
    return None


def entry_section(path: str) -> type[Section] | None:
    """The section that a key within an entry of a list belongs to, such as that of `data.sets.0.repeats`."""
    owned = owner(path)
    if owned is None or len(owned[1]) < 2 or not owned[0].shape.is_list:
        return None
    section: Any = owned[0].shape.item(0).base
    for word in owned[1][1:-1]:
        info = section.model_fields.get(word) if is_section(section) else None
        section = sections_in(info.annotation)[0] if info is not None and sections_in(info.annotation) else None
        if section is None:
            return None
    return section if is_section(section) else None


def is_section(kind: object) -> TypeGuard[type[Section]]:
    """Whether a type is a section of settings."""
    return isinstance(kind, type) and issubclass(kind, Section)


def _walk(section: type[Section], prefix: str, defaults: dict[str, Any]) -> Iterator[Setting]:
    for name, info in section.model_fields.items():
        path = prefix + word_of(name, info)
        nested = sections_in(info.annotation)
        default = defaults.get(word_of(name, info))
        if not nested:
            shape = shape_of(info.annotation, tuple(info.metadata))
            yield Setting(path, shape, join_lines(info.description), default, change_of(section, name), section, name)
        for inner in nested:
            values = default if isinstance(default, dict) else {}
            yield from _walk(inner, path + ".", values or inner().model_dump(mode="json", by_alias=True))


def _walk_sections(section: type[Section], prefix: str) -> Iterator[tuple[str, str]]:
    for name, info in section.model_fields.items():
        for inner in sections_in(info.annotation)[:1]:
            path = prefix + word_of(name, info)
            yield path, join_lines(info.description)
            yield from _walk_sections(inner, path + ".")


def first_sentence(text: str) -> str:
    """A help text up to its first full stop, without it. `et al. 2021` and `data.path` do not end a sentence."""
    return re.split(r"\.(?:\s+(?=[^\d\s])|$)", text, maxsplit=1)[0]


def join_lines(text: str | None) -> str:
    """A docstring without its line breaks."""
    return " ".join((text or "").split())
