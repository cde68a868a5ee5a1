"""Explanations of settings, taken from their own source: for `mezzotint explain` and for editors (JSON Schema)."""

from __future__ import annotations

import functools
import json
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Union, get_args, get_origin

from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema

from mezzotint import registry
from mezzotint.codes import SEE_MESSAGE
from mezzotint.errors import RecipeError
from mezzotint.settings.advice import ADVICE
from mezzotint.settings.base import ChangeKind, Every, Section
from mezzotint.settings.reading import paths
from mezzotint.settings.reading.foreign_names import Foreign, meaning_of
from mezzotint.settings.reading.nearest import nearest, search
from mezzotint.settings.reading.paths import Setting, Shape, by_path, join_lines, owner, sections, settings
from mezzotint.settings.recipe import Recipe
from mezzotint.settings.renamed import new_path

ON_RESUME: dict[ChangeKind, str] = {
    "free": "may change",
    "recorded": "may change; the history records it, and the run is no longer bit-exact from there",
    "allow": "refused, unless run.allow_change names it",
    "never": "refused; start a new run from these weights",
}
"""What happens when a run is resumed with another value."""

_MOST_MATCHES, _MOST_OTHERS = 12, 6
"""How many settings are listed for a phrase, and how many more for another trainer's name of a setting."""

_LIMITS = {"gt": "above {}", "ge": "at least {}", "lt": "below {}", "le": "at most {}", "multiple_of": "multiple of {}"}
_DIALECT = "https://json-schema.org/draft/2020-12/schema"


def explain(path: str) -> str:
    """The explanation of a setting or a section, as text of at most 100 columns; `recipe` is the whole. A name of
    another trainer is explained as our setting, with the trainers that use it. For other words, the settings whose path
    or help contains them are listed.

    Raises RecipeError E1013 with the nearest path if nothing matches.
    """
    text = explain_name(path)
    if text is not None:
        return text
    matches = search(path) if "." not in path else []
    if matches:
        return _explain_matches(path, matches)
    near = nearest(path)
    hint = f"did you mean {near}?" if near else "`mezzotint explain recipe` lists all settings"
    raise RecipeError(f"there is no setting {path}; {hint}", code="E1013")


@functools.cache
def error_codes() -> Mapping[str, str]:
    """The text of every code, in order: those of `mezzotint.codes`, of folders of `compat` and of packages; see
    `codes`."""
    tables = [registry.find("codes", name).CODES for name in registry.names("codes", skip_unimported=True)]
    return dict(sorted((code, text) for table in tables for code, text in table.items()))


def explain_code(code: str) -> str | None:
    """What `mezzotint explain` prints for a code: its title, a line break, and its paragraph. None for an unknown
    code."""
    text = error_codes().get(code.upper())
    return text if text is None or "\n" in text else f"{text}\n{SEE_MESSAGE}"


def explain_name(path: str) -> str | None:
    """`explain` for a path of ours or a name of another trainer; None for anything else."""
    if path in by_path():
        return _explain_setting(by_path()[path])
    if path in sections() or path == "recipe":
        return _explain_section(path)
    inside = owner(path)
    if inside is not None and (inside[0].shape.is_list or inside[0].shape.is_map):
        return _explain_setting(inside[0])
    renamed = new_path(path)
    if renamed is not None:
        return f"{path} was renamed to {renamed}\n\n{explain(renamed)}"
    match = meaning_of(path)
    if match is not None:
        return _explain_foreign(path.lstrip("-"), match)
    return None


def json_schema() -> dict[str, Any]:
    """JSON Schema (2020-12) of a recipe file, for editors and for other programs. Keys that are not settings are
    refused, and a list may be written as one value, as in the reader."""
    schema = Recipe.model_json_schema(by_alias=True, schema_generator=_Schema)
    schema = {"$schema": _DIALECT, **schema, "title": "Mezzotint recipe"}
    for setting in settings():
        if setting.shape.one_for_many:
            _allow_single(schema, setting)
    return _tidy(schema)  # type: ignore[no-any-return]


def json_schema_text() -> str:
    """`json_schema` as the text of the shipped file."""
    return json.dumps(json_schema(), indent=2, ensure_ascii=False) + "\n"


class _Schema(GenerateJsonSchema):
    """Schema without pydantic's titles, which repeat the key with a capital."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


def describe_type(shape: Shape) -> str:
    """A type as text: `whole number above 0`, `one of mse, huber`, `list of texts, or one`, `interval or null`."""
    text = _describe_base_type(shape)
    limits = [_LIMITS[name].format(_number(value)) for name, value in _limits(shape)]
    if limits:
        text += " " + ", ".join(limits)
    return f"{text}, or null" if shape.nullable else text


def _describe_base_type(shape: Shape) -> str:
    base = shape.base
    if shape.choices:
        return f"one of {', '.join(shape.choices)}" if len(shape.choices) > 1 else shape.choices[0]
    if shape.is_map:
        return f"mapping from name to {describe_type(shape.item(0))}"
    if shape.is_list:
        inner = get_args(base)
        if len(inner) == 2 and inner[1] is Ellipsis:
            item = shape.item(0)
            return (
                f"{describe_type(item)}, or a list of them"
                if shape.one_for_many
                else f"list of [{describe_type(item)}]"
            )
        return ", ".join(describe_type(shape.item(index)) for index in range(len(inner)))
    names: dict[Any, str] = {bool: "true or false", int: "whole number", float: "number", str: "text", Path: "path"}
    names[Any] = "value"
    names[Every] = "interval such as `500 steps`"
    if all(isinstance(kind, type) and issubclass(kind, Section) for kind in get_args(base) or (base,)):
        return "settings, as in the section of that kind"
    if get_origin(base) is Union:
        return ", or ".join(describe_type(shape.item(index)) for index in range(len(get_args(base))))
    assert base in names, f"{base} has no description in the reference"
    return names[base]


def _limits(shape: Shape) -> Iterator[tuple[str, Any]]:
    if get_origin(shape.base) is not None:
        return
    marks = [inner for mark in shape.marks for inner in (mark.metadata if isinstance(mark, FieldInfo) else [mark])]
    for mark in marks:
        for name in _LIMITS:
            value = getattr(mark, name, None)
            if isinstance(value, (int, float)):
                yield name, value


def _number(value: float) -> str:
    if isinstance(value, int) and value >= 1 << 32 and value & (value - 1) == 0:
        return f"2^{value.bit_length() - 1}"
    return f"{value:g}" if value < 1e6 else str(value)


def _explain_setting(row: Setting) -> str:
    text = [
        row.path,
        wrap_paragraph(f"{describe_type(row.shape)}; default {default_text(row)}"),
        wrap_paragraph(f"on resume: {ON_RESUME[row.change]}"),
        "",
        wrap_paragraph(row.help),
    ]
    if row.path in ADVICE:
        text += ["", wrap_paragraph(f"Advised: {ADVICE[row.path]}")]
    return "\n".join(text)


def _explain_foreign(name: str, match: Foreign) -> str:
    note = f": {match.note}" if match.note else ""
    if match.path is None:
        return wrap_paragraph(f"{name} ({match.origin}) has no counterpart here{note}.").strip()
    text = wrap_paragraph(f"{name} ({match.origin}) is {match.path} here{note}.").strip() + f"\n\n{explain(match.path)}"
    others = ", ".join([path for path in search(name) if path != match.path][:_MOST_OTHERS])
    return f"{text}\n\n{wrap_paragraph(f'See also: {others}')}" if others else text


def _explain_section(path: str) -> str:
    prefix = "" if path == "recipe" else f"{path}."
    about = sections().get(path) or join_lines(Recipe.__doc__)
    helps = {row.path: row.help for row in settings() if row.path.startswith(prefix)}
    return "\n".join([path, wrap_paragraph(about), "", *_overview(helps)])


def _explain_matches(phrase: str, matches: Sequence[str]) -> str:
    """Settings and sections that match a phrase."""
    head = f"Settings about {phrase!r}:"
    if len(matches) > _MOST_MATCHES:
        head = f"Settings about {phrase!r}, the nearest {_MOST_MATCHES} of {len(matches)}:"
    about = {**sections(), **{row.path: row.help for row in settings()}}
    return "\n".join([head, "", *_overview({path: about[path] for path in matches[:_MOST_MATCHES]})])


def _overview(helps: Mapping[str, str]) -> Iterator[str]:
    """A line for each setting or section with the first sentence of its help."""
    width = max(map(len, helps))
    for path, text in helps.items():
        short = textwrap.shorten(paths.first_sentence(text), width=max(30, 96 - width), placeholder=" …")
        yield f"  {path:<{width}}  {short}"
    yield from ("", "`mezzotint explain PATH` prints everything about one of them.")


def wrap_paragraph(text: str) -> str:
    """A paragraph of 100 columns, indented by two."""
    return textwrap.fill(text, width=100, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False)


def default_text(row: Setting) -> str:
    """The default as written in a recipe; JSON for values other than texts."""
    value = row.default
    if isinstance(value, list) and len(value) == 1 and "or a list of them" in describe_type(row.shape):
        value = value[0]  # as it is usually written
    return json.dumps(value, ensure_ascii=False).strip('"') or '""'


def _allow_single(schema: dict[str, Any], setting: Setting) -> None:
    field = schema["$defs"][setting.section.__name__]["properties"][setting.name]
    array = {key: field.pop(key) for key in ("type", "items", "minItems", "maxItems") if key in field}
    field["anyOf"] = [array, array["items"]]


def _tidy(schema: Any) -> Any:
    """Joins the lines of descriptions, which come from docstrings."""
    if isinstance(schema, dict):
        return {
            key: join_lines(value) if key == "description" and isinstance(value, str) else _tidy(value)
            for key, value in schema.items()
        }
    return [_tidy(item) for item in schema] if isinstance(schema, list) else schema
