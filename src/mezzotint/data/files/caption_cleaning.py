"""`data.captions.clean`: cleaned captions of samples, and of prompts. The rules are in `_cleaning_rules.py`, whose
packages need not be installed where nothing is cleaned."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from typing import TypeVar

from mezzotint.errors import RecipeError
from mezzotint.stages import Sample

Item = TypeVar("Item")

VERSION = 1
"""Part of the address of an index. Raise it when a caption comes out differently."""


def cleaner() -> Callable[[str], str]:
    """The rules. Raises RecipeError E1466 without the packages of the extra `video`."""
    try:
        clean: Callable[[str], str] = import_module("mezzotint.data.files._cleaning_rules").clean
    except ModuleNotFoundError as error:
        raise RecipeError(
            f"data.captions.clean needs the package {error.name}, which is not installed; install mezzotint[video], or "
            "write data.captions.clean=false",
            code="E1466",
        ) from error
    return clean


def cleaned(item: Item) -> Item:
    """A sample with cleaned captions; anything else as it is."""
    if not isinstance(item, Sample):
        return item
    clean = cleaner()
    return replace(item, captions=tuple(map(clean, item.captions)))
