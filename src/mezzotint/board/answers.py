"""What goes out to a browser and comes in from it, as text that every encoding and command line can hold."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse

from mezzotint import outside
from mezzotint.errors import RecipeError

_UNFIT = re.compile("[\0\ud800-\udfff]")


class JsonAnswer(JSONResponse):
    """JSON in ASCII: half of a surrogate pair, which UTF-8 does not have, is written as its escape."""

    def render(self, content: Any) -> bytes:
        return json.dumps(content, allow_nan=False, separators=(",", ":")).encode("ascii")


class HtmlAnswer(HTMLResponse):
    """A page; half of a surrogate pair is shown as its escape."""

    def render(self, content: Any) -> bytes:
        return str(content).encode("utf-8", "backslashreplace")


async def body_of(request: Request) -> dict[str, Any]:
    """The object that a request brings; empty for anything else. Raises RecipeError E1012 for text that no command line
    can hold."""
    try:
        value = outside.parse_json((await request.body()).decode("utf-8"))
    except ValueError:
        return {}
    if any(_UNFIT.search(text) for text in _texts(value)):
        raise RecipeError(
            "the form holds a character that no command line can (NUL, or half of a surrogate pair); remove it",
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
