"""The fields of the form: the text of a setting's value in its field, and the `key=value` of the text that is typed.

An empty field means null, an empty list or an empty mapping. Lists of texts and mappings have one entry per line; lists
of numbers are separated by commas.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

from mezzotint import registry
from mezzotint.board.reading import values
from mezzotint.settings import reference, weights_formats
from mezzotint.settings.base import Every
from mezzotint.settings.families import base as families
from mezzotint.settings.reading.paths import Setting, Shape

_REGISTERED = {"model.family": families.FOLDER, "data.format": "data/formats", "run.live.dialect": "dialects"}
"""Settings whose choices are the modules of a folder."""
_WEIGHTS_FORMATS = ("run.export.file_format", "run.export.trained_file")
"""Settings whose choices are the formats of weights files."""

_COMMA = re.compile(r"\s*([+-]?\d+),(\d+)\s*")
_SCALARS = (bool, int, float, str, Path)


def field_of(setting: Setting, dumped: Mapping[str, Any]) -> dict[str, Any]:
    """A field for the template. dumped: the values of a recipe by path. A setting that is not in it, such as one of
    another optimizer, is empty."""
    shape, is_in_recipe = setting.shape, setting.path in dumped
    value = dumped.get(setting.path)
    text = field_text(shape, value) if is_in_recipe else ""
    choices = _choices(setting)
    if choices:
        choices = [*([""] if shape.nullable or not is_in_recipe else []), *choices]
        choices += [] if text in choices else [text]
    type_text = reference.describe_type(replace(shape, nullable=False))
    return {
        "path": setting.path,
        "name": setting.name,
        "value": text,
        "usual": field_text(shape, setting.default).replace("\n", ", ") or ("not set" if shape.nullable else "empty"),
        "is_usual": not is_in_recipe or value == setting.default,
        "choices": choices,
        "is_number": shape.base in (int, float),
        "is_long": _has_lines(shape),
        "hint": _hint(shape),
        "type": f"{type_text}, or empty" if shape.nullable else type_text,
        "help": setting.help,
    }


def field_text(shape: Shape, value: Any) -> str:
    """The text of a value in its field."""
    if value is None or value in ([], {}):
        return ""
    if isinstance(value, list) and _is_of_texts(shape):
        return "\n".join(map(values.to_text, value))
    if isinstance(value, list) and _is_of_numbers(shape):
        return ", ".join(map(values.to_text, value))
    if isinstance(value, dict) and _has_lines(shape):
        return "\n".join(f"{name}: {values.to_text(one)}" for name, one in value.items())
    if isinstance(value, str) and value != value.strip():
        return json.dumps(value, ensure_ascii=False)  # quotes preserve spaces, such as those of Qwen's negative prompt
    return values.to_text(value)


def word_of(setting: Setting, text: str) -> str:
    """`key=value` of the text in a field. 1,5 becomes 1.5 where a single number is allowed."""
    shape, stripped = setting.shape, text.strip()
    if not stripped and (shape.nullable or shape.is_list or shape.is_map):
        text = "null" if shape.nullable else "[]" if shape.is_list else "{}"
    elif shape.base in (int, float) or (shape.one_for_many and _is_of_numbers(shape) and _COMMA.fullmatch(text)):
        text = _COMMA.sub(r"\1.\2", text)
    elif _is_of_texts(shape):
        lines = [line.strip() for line in stripped.splitlines() if line.strip()]
        if len(lines) > 1 or not (shape.one_for_many or stripped.startswith("[")):
            text = json.dumps(lines, ensure_ascii=False)
    elif _is_of_numbers(shape):
        text = f"[{stripped}]" if "," in stripped and not stripped.startswith("[") else stripped
    elif _has_lines(shape) and not stripped.startswith("{"):
        text = f"{{{', '.join(_entry(line, shape) for line in stripped.splitlines() if line.strip())}}}"
    return f"{setting.path}={text}"


def _entry(line: str, shape: Shape) -> str:
    name, _, value = line.rpartition(": ") if shape.item(0).base in (int, float) else line.partition(": ")
    text = json.dumps(value.strip(), ensure_ascii=False) if shape.item(0).is_text else value.strip()
    return f"{json.dumps(name.strip(), ensure_ascii=False)}: {text}"


def _choices(setting: Setting) -> list[str]:
    """The choices of a field with a closed set of values; empty for other fields."""
    if setting.path in _REGISTERED:
        return list(registry.names(_REGISTERED[setting.path], skip_unimported=True))
    if setting.path in _WEIGHTS_FORMATS:
        return list(weights_formats.names())
    if setting.shape.base is bool:
        return ["true", "false"]
    return [values.to_text(one) for one in get_args(setting.shape.base)] if setting.shape.choices else []


def _is_of_texts(shape: Shape) -> bool:
    return shape.is_list and len(get_args(shape.base)) == 2 and shape.item(0).base in (str, Path, Every)


def _is_of_numbers(shape: Shape) -> bool:
    return shape.is_list and all(
        shape.item(index).base in (int, float) for index, one in enumerate(get_args(shape.base)) if one is not Ellipsis
    )


def _has_lines(shape: Shape) -> bool:
    """Whether a field has one entry per line."""
    return _is_of_texts(shape) or (shape.is_map and shape.item(0).base in _SCALARS)


def _hint(shape: Shape) -> str:
    if shape.is_map:
        return "NAME: VALUE, one per line" if _has_lines(shape) else "{NAME: …}"
    if _is_of_texts(shape):
        return "one per line"
    return "not set" if shape.nullable else ""
