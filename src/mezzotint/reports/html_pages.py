"""Jinja templates for HTML pages: reports and the local page."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jinja2


def templates(package: str, **filters: Callable[..., Any]) -> jinja2.Environment:
    """The templates in the folder `templates` of a package. Every value is escaped, and an undefined name is an
    error. filters: by name."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader(package), autoescape=True, undefined=jinja2.StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    environment.filters |= filters
    return environment
