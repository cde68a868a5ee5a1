"""Arguments of the form `key=value` after one flag, such as those of adapters and optimizers."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from mezzotint.compat.kit import reading
from mezzotint.compat.kit.dialect import Draft, Row
from mezzotint.errors import did_you_mean

_NOTHING = object()
HUGE = 1e300
"""Numbers of optimizers are below this."""
_OFF = re.compile(r"None|False|false|0*\.?0*")


def read_arguments(draft: Draft, flag: str, rows: Sequence[Row]) -> dict[str, Any]:
    """The values of a flag's pairs by name, with the defaults of `rows`. Unknown names and unsupported values are
    refused."""
    specs = {one.flag: one for one in rows}
    values: dict[str, Any] = {one.flag: one.default for one in rows}
    for name, text in _read_pairs(draft, flag, specs):
        spec = specs[name]
        value, problem = reading.value_of(spec, [text])
        if problem:
            draft.refuse(flag, f"{name} {problem}", code="E1017")
        elif spec.outcome == "waits" and value != spec.default and not _OFF.fullmatch(text):
            message = f"{name} needs {spec.feature}, which Mezzotint does not have yet"
            draft.refuse(flag, message, "leave it out")
        elif spec.least is not None and isinstance(value, (int, float)) and value < spec.least:
            draft.refuse(flag, f"{name} must be {spec.least} or more, got {value}", code="E1017")
        else:
            values[name] = value
    return values


def read_literals(draft: Draft, flag: str, known: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a flag's pairs by name; Python literals. known: the optimizer's defaults by name, of the same
    types; None for a number that may be left out."""
    values: dict[str, Any] = {}
    for name, text in _read_pairs(draft, flag, known):
        try:
            value = parse_literal(text)
        except ValueError:
            value = _NOTHING
        if _is_like(value, known[name]):
            values[name] = value
        else:
            shown = "True or False" if isinstance(known[name], bool) else "a number"
            shown = "two numbers" if isinstance(known[name], tuple) else shown
            draft.refuse(flag, f"{name} must be {shown}, got {text[:40]}", code="E1017")
    return values


def parse_literal(text: str) -> Any:
    """A Python literal of finite numbers, texts, lists, True, False and None. Raises ValueError for anything else."""
    try:
        value = ast.literal_eval(text)
        json.dumps(value, allow_nan=False)  # refuses sets, bytes and complex numbers, which settings cannot hold
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError) as error:
        raise ValueError(f"is not a literal: {text[:40]}") from error
    return value


def _is_like(value: Any, default: Any) -> bool:
    """Whether a value has the type of a default, and is finite."""
    if isinstance(default, tuple):
        return isinstance(value, (tuple, list)) and len(value) == 2 and all(_is_like(one, 0.0) for one in value)
    if isinstance(default, bool) or isinstance(value, bool):
        return isinstance(value, bool) and isinstance(default, bool)
    return (value is None and default is None) or (isinstance(value, (int, float)) and abs(value) < HUGE)


def _read_pairs(draft: Draft, flag: str, known: Mapping[str, Any]) -> list[tuple[str, str]]:
    words = draft.values[flag]
    pairs = []
    for word in words if isinstance(words, tuple) else ():
        name, sign, text = (part.strip() for part in str(word).partition("="))
        if not sign or not text:
            draft.refuse(flag, f"{str(word)[:40]} has no value", "write it like key=value", "E1017")
        elif name not in known:
            draft.refuse(flag, f"unknown argument {name[:40]}", did_you_mean(name, known, "leave it out"), "E1016")
        else:
            pairs.append((name, text))
    return pairs
