"""Responses to the browser and request bodies, restricted to text that every encoding and command line can hold."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse

from mezzotint import outside
from mezzotint.errors import RecipeError

_NOT_IN_COMMANDS = re.compile("[\0\ud800-\udfff]")


class JsonAnswer(JSONResponse):
    """JSON in ASCII: a lone surrogate, which UTF-8 cannot encode, is written as its escape."""

    def render(self, content: Any) -> bytes:
        return json.dumps(content, allow_nan=False, separators=(",", ":")).encode("ascii")


class HtmlAnswer(HTMLResponse):
    """A page; a lone surrogate is shown as its escape."""

    def render(self, content: Any) -> bytes:
        return str(content).encode("utf-8", "backslashreplace")


async def read_body(request: Request) -> dict[str, Any]:
    """The JSON object in a request's body; empty for anything else. Raises RecipeError E1012 for text that a command
    line cannot hold."""
    try:
        value = outside.parse_json((await request.body()).decode("utf-8"))
    except ValueError:
        return {}
    if any(_NOT_IN_COMMANDS.search(text) for text in _texts(value)):
        raise RecipeError(
            "the form contains a character that a command line cannot hold (NUL or a lone surrogate); remove it",
            code="E1012",
        )
    return value if isinstance(value, dict) else {}


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for name, inner in value.items():
            yield name
            yield from _texts(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _texts(inner)
