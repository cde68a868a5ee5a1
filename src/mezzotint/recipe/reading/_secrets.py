"""Tokens and passwords that have got into a recipe. Recipes are copied into run folders, shared and published, so that
they are refused, comments included, and never repeated in a message."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

_TOKEN = re.compile(
    r"\bhf_[A-Za-z0-9]{16,}|\bgh[pousr]_[A-Za-z0-9]{20,}|\bgithub_pat_[A-Za-z0-9_]{20,}|\bsk-[A-Za-z0-9_-]{20,}"
    r"|\bAKIA[0-9A-Z]{16}\b|\bxox[abpr]-[A-Za-z0-9-]{10,}|\bwandb_v[0-9]_[A-Za-z0-9_]{20,}"
)
_URL = re.compile(r"\b[a-z][a-z0-9+.-]*://[^\s/@:'\"]*:[^\s/@'\"]+@", re.IGNORECASE)
_BARE_KEY = re.compile(r"[0-9a-f]{40}")
_SECRET_NAME = re.compile(r"(?:^|[_.-])(?:token|api_?key|password|passwd|secret)$", re.IGNORECASE)


def in_text(text: str) -> str | None:
    """What kind of secret a text holds ("an access token", "a URL with a password"), or None.

    Forty hexadecimal digits that are the whole text count as a Weights & Biases key; within a path they are the name of
    a snapshot and pass.
    """
    if _TOKEN.search(text):
        return "an access token"
    if _URL.search(text):
        return "a URL with a password"
    return "an access key" if _BARE_KEY.fullmatch(text.strip()) else None


def in_lines(text: str) -> Iterator[tuple[int, str]]:
    """(line, kind) of every line that holds a secret, comments included."""
    for number, line in enumerate(text.splitlines(), start=1):
        kind = in_text(line) if not _BARE_KEY.fullmatch(line.strip()) else None
        if kind is not None:
            yield number, kind


def in_tree(tree: Any, place: tuple[str | int, ...] = ()) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """(place, kind) of every value that is a secret, or whose key says so (`api_key`)."""
    if isinstance(tree, dict):
        for key, value in tree.items():
            yield from in_tree(value, (*place, str(key)))
    elif isinstance(tree, list):
        for index, value in enumerate(tree):
            yield from in_tree(value, (*place, index))
    elif isinstance(tree, str):
        kind = in_text(tree)
        if kind is None and place and tree and _SECRET_NAME.search(str(place[-1])):
            kind = "an access key"
        if kind is not None:
            yield place, kind
