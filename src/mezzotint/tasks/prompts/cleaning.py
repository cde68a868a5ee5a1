"""Cleaning of prompts, the same as that of captions, and notes on prompt syntax of other programs, which has no
effect."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from mezzotint.data.files import caption_cleaning
from mezzotint.sampling.prompt_file import Line
from mezzotint.settings.counting import format_names
from mezzotint.settings.sections.data import CaptionSettings

_SIGNS = re.compile(r"\{[^{}|]*\|[^{}]*\}|\([^()]+:\s*\d*\.?\d+\s*\)|<(?:lora|lyco|hypernet):[^<>]+>|\b__[\w/-]+__\b")
"""`{a|b}`, `(x:1.4)`, `<lora:name:1>` and `__name__`, which user interfaces read as more than text."""


def sign_notes(prompts: Iterable[str]) -> list[str]:
    """A sentence if prompts contain choices, weights or similar syntax, which is read as plain text; otherwise
    empty."""
    signs = list(dict.fromkeys(match[0] for prompt in prompts for match in _SIGNS.finditer(prompt)))
    if not signs:
        return []
    return [f"prompts are read as plain text: {format_names(signs, 3)} has no effect"]


def clean_prompt(text: str, captions: CaptionSettings) -> str:
    """Cleans a prompt with `data.captions.clean`. Raises RecipeError E1466 as `cleaning.cleaner`."""
    return caption_cleaning.cleaner()(text) if captions.clean else text


def clean_line(line: Line, captions: CaptionSettings) -> Line:
    """Cleans the prompts of a line of a prompt file."""
    if not captions.clean:
        return line
    negative = None if line.negative is None else clean_prompt(line.negative, captions)
    return replace(line, prompt=clean_prompt(line.prompt, captions), negative=negative)
