"""What all recipe sections share: frozen typed settings, units, intervals, and rules for changes on resume.

Every field has its help text as the docstring below it, and a `Change`: what happens when a run is resumed with
another value.
"""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    SerializerFunctionWrapHandler,
    WithJsonSchema,
    create_model,
    model_serializer,
    model_validator,
)
from pydantic.fields import FieldInfo

S = TypeVar("S", bound="Section")
ChangeKind = Literal["free", "recorded", "allow", "never"]


@dataclass(frozen=True, slots=True)
class Change:
    """What happens when a run is resumed with another value of a setting.

    free: nothing. recorded: allowed, and written into the history with "not bit-exact from step N".
    allow: refused unless `run.allow_change` names it, then recorded. never: always refused; start a new run from these
    weights.
    """

    kind: ChangeKind


LARGEST = 1e30
"""The largest number of a setting: float32 ends at 3.4e38, and settings are multiplied."""
MOST_STEPS = 10**9
"""The longest run in steps: with more, counting would take hours and gigabytes."""
MOST_EPOCHS = 10**6

FREE = Change("free")
RECORDED = Change("recorded")
ALLOW = Change("allow")
NEVER = Change("never")


class Section(BaseModel):
    """A group of settings: frozen, unknown keys refused, usable defaults."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False, validate_default=True
    )

    @model_validator(mode="after")
    def _refuse_contradictions(self) -> Self:
        for sentence in self.contradictions():
            raise ValueError(sentence)
        return self

    @model_validator(mode="after")
    def _refuse_large_numbers(self) -> Self:
        for name, value in self:
            if isinstance(value, float) and abs(value) > LARGEST:
                raise ValueError(f"{name} is {value:g}, too large to compute with; write at most {LARGEST:g}")
        return self

    def contradictions(self) -> Iterator[str]:
        """Contradictions between its settings, a sentence each. The first one is shown."""
        yield from ()

    @classmethod
    def add_section(cls, name: str, kind: type[Section] | None) -> None:
        """Adds the settings of one choice, such as `model.flux` of a family; their docstring is the section's help.
        kind: None adds nothing."""
        if kind is not None:
            about = inspect.cleandoc(kind.__doc__ or "")
            info = FieldInfo.from_annotated_attribute(kind, Field(default=kind(), description=about))
            cls.__pydantic_fields__[name] = info
            cls.model_rebuild(force=True)

    def get_section(self, kind: type[S]) -> S:
        """The section of one choice, by its class."""
        return next((value for value in self.__dict__.values() if isinstance(value, kind)), kind())


def change_of(section: type[Section], field: str) -> ChangeKind:
    """The resume rule of a field. A nested section without a rule counts as `allow` here; its fields decide."""
    for mark in section.model_fields[field].metadata:
        if isinstance(mark, Change):
            return mark.kind
    return "allow"


@dataclass(frozen=True, slots=True)
class Every:
    """An interval: `Every(500, "steps")`, `Every(2, "epochs")`, `Every(10, "minutes")`; in a recipe `500 steps`, or
    `500` for steps."""

    count: float
    unit: Literal["steps", "epochs", "minutes"]

    def __str__(self) -> str:
        number = str(int(self.count)) if self.count == int(self.count) else str(self.count)
        return f"{number} {self.unit if number != '1' else self.unit[:-1]}"

    @staticmethod
    def parse(text: object) -> Every:
        """Reads `500`, `"500 steps"`, `"1 epoch"`, `"7.5 minutes"`. Raises ValueError with the expected form."""
        if isinstance(text, Every):
            return text
        if isinstance(text, bool) or not isinstance(text, (int, float, str)):
            raise ValueError("an interval is a number of steps, or a text like '500 steps', '2 epochs', '10 minutes'")
        match = re.fullmatch(
            r"\s*((?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:e[+-]?[0-9]+)?)\s*(steps?|epochs?|min(?:ute)?s?)?\s*", str(text)
        )
        if not match:
            raise ValueError(
                f"an interval is a number of steps, or a text like '500 steps', '2 epochs', '10 minutes'; got {text!r}"
                + _interval_hint(str(text))
            )
        count = float(match[1])
        if count > LARGEST:
            raise ValueError(f"an interval is at most {LARGEST:g}, got {text!r}")
        word = match[2] or "steps"
        unit: Literal["steps", "epochs", "minutes"] = (
            "steps" if word.startswith("s") else "epochs" if word.startswith("e") else "minutes"
        )
        if count <= 0 or (unit != "minutes" and count != math.floor(count)):
            raise ValueError(f"an interval must be above 0, and whole for steps and epochs; got {text!r}")
        return Every(count, unit)


def _interval_hint(text: str) -> str:
    """`; did you mean '10 minutes'?` for an abbreviated unit."""
    short = re.fullmatch(r"\s*([0-9.]+)\s*(m|s|st|e|ep|h|hrs?|hours?)\.?\s*", text.lower())
    if short is None:
        return ""
    units = {"m": "minutes", "s": "steps", "e": "epochs", "h": "minutes"}
    count = f"{60 * float(short[1]):g}" if short[2].startswith("h") and short[1].count(".") < 2 else short[1]
    return f"; did you mean '{count} {units[short[2][0]]}'?"


Interval = Annotated[
    Every,
    BeforeValidator(Every.parse),
    PlainSerializer(str, return_type=str),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string", "pattern": r"^\s*[0-9.]+(e[+-]?[0-9]+)?\s*(steps?|epochs?|min(ute)?s?)?\s*$"},
                {"type": "number"},
            ]
        }
    ),
]


class PartialSection(Section):
    """A section of which only what is set counts: other values are those of another section, and are not written."""

    @model_serializer(mode="wrap")
    def _without_defaults(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        defaults = {name: info.default for name, info in type(self).model_fields.items()}
        return {name: value for name, value in write(self).items() if getattr(self, name) != defaults[name]}


def take_only(value: Any) -> Any:
    """The entry of a list of one; None for an empty list. Raises ValueError for a longer one."""
    if not isinstance(value, (list, tuple)):
        return value
    if len(value) > 1:
        raise ValueError("takes one value; write several in the entries of data.sets, such as [{path: A}, {path: B}]")
    return value[0] if value else None


def require_one_line(value: str) -> str:
    """A text without spaces around it. Raises ValueError for several lines."""
    if "\0" in value or len(value.splitlines()) > 1:
        raise ValueError("must be one line of text")
    return value.strip()


def make_optional_copy(section: type[Section], name: str, fields: Iterable[str] | None = None) -> type[PartialSection]:
    """A section with the same settings, or those of `fields`, of which each is None until it is set: for values that
    replace those of `section`."""
    chosen = section.model_fields if fields is None else fields
    copies: dict[str, Any] = {}
    for field in chosen:
        info = section.model_fields[field]
        copies[field] = (
            Annotated[info.annotation, *info.metadata] | None,
            Field(default=None, description=info.description),
        )
    return create_model(name, __base__=PartialSection, __doc__=section.__doc__, **copies)


def override(section: S, values: Section) -> S:
    """A section with the values that are set in another one, section by section; others than its own are ignored.
    Contradictions are not checked."""
    changes: dict[str, Any] = {}
    for name in type(values).model_fields.keys() & type(section).model_fields.keys():
        value = getattr(values, name)
        if isinstance(value, Section):
            changes[name] = override(getattr(section, name), value)
        elif value is not None:
            changes[name] = value
    return section.model_copy(update=changes)


def with_values(section: S, values: Mapping[str, Any]) -> S:
    """A copy of a section with other values, already of the right types, at dotted paths within it. Used to complete a
    recipe or to derive another one."""
    for path, value in values.items():
        name, _, inside = path.partition(".")
        if inside:
            value = with_values(getattr(section, name), {inside: value})
        section = section.model_copy(update={name: value})
    return section


def as_intervals(value: Any) -> Any:
    """An empty list for None, a list of one for a single value."""
    return [] if value is None else as_list(value)


Intervals = Annotated[tuple[Interval, ...], BeforeValidator(as_intervals)]
"""One interval, a list of several, or null for none."""

Share = Annotated[float, Field(ge=0.0, le=1.0)]
"""A fraction between 0 and 1."""


def refuse_empty_path(value: Any) -> Any:
    """Refuses an empty path, which would be the current folder: probably a variable was not set."""
    if isinstance(value, str) and not value.strip():
        raise ValueError("is empty; write the path, or `.` for the current folder")
    return value


@dataclass(frozen=True, slots=True)
class Located:
    """How `reading.read.resolve_paths` resolves a path; every path field has this mark.

    how: "found" where it exists, next to the recipe or in the current folder; "found later" the same, and absolute in
    the current folder if it does not exist yet; "absolute" in the current folder, whether it exists or not; "home"
    only expands `~`. shipped: for "found", what else it may name: a model or a data set that ships with Mezzotint.
    """

    how: Literal["found", "found later", "absolute", "home"]
    shipped: Literal["models", "data"] | None = None


_Named = Annotated[Path, BeforeValidator(refuse_empty_path)]
InputPath = Annotated[_Named, Located("found")]
ModelPath = Annotated[_Named, Located("found", "models")]
DataPath = Annotated[_Named, Located("found", "data")]
OutputPath = Annotated[_Named, Located("home")]
PublishedPath = Annotated[_Named, Located("absolute")]
AwaitedPath = Annotated[_Named, Located("found later")]


def as_list(value: Any) -> Any:
    """A list of one for a single value."""
    return value if isinstance(value, (list, tuple)) else [value]
