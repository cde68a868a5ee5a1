"""Values as TOML: the settings and data set files that are written for other trainers."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any


def write_toml(tree: Mapping[str, Any]) -> str:
    """A tree of mappings, lists of mappings, texts, numbers, switches and lists of them, as TOML."""
    return "\n".join(_lines(tree, "")).strip("\n") + "\n"


def _lines(table: Mapping[str, Any], name: str) -> Iterator[str]:
    """The lines of a table: its own keys, then the tables inside it."""
    inner = {key: value for key, value in table.items() if isinstance(value, Mapping) or _is_tables(value)}
    yield from (f"{key} = {_format(value)}" for key, value in table.items() if key not in inner)
    for key, value in inner.items():
        full = f"{name}.{key}" if name else key
        is_list = not isinstance(value, Mapping)
        for one in value if is_list else (value,):
            yield from ("", f"[[{full}]]" if is_list else f"[{full}]", *_lines(one, full))


def _is_tables(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(one, Mapping) for one in value)


def _format(value: bool | int | float | str | Sequence[Any]) -> str:
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_format, value))}]"
    return str(value).lower() if isinstance(value, bool) else repr(value)
