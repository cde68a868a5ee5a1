"""Prompts as captions are shown: what cleans the one cleans the other, and signs of other programs mean nothing."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from mezzotint.data.files import caption_cleaning
from mezzotint.sampling.prompt_file import Line
from mezzotint.settings.counting import listed
from mezzotint.settings.sections.data import CaptionSettings

_SIGNS = re.compile(r"\{[^{}|]*\|[^{}]*\}|\([^()]+:\s*\d*\.?\d+\s*\)|<(?:lora|lyco|hypernet):[^<>]+>|\b__[\w/-]+__\b")
"""`{a|b}`, `(x:1.4)`, `<lora:name:1>` and `__name__`, which user interfaces read as more than text."""


def sign_notes(prompts: Iterable[str]) -> list[str]:
    """One sentence when prompts hold choices, weights or the like, which are taken as plain text; otherwise none."""
    signs = list(dict.fromkeys(match[0] for prompt in prompts for match in _SIGNS.finditer(prompt)))
    if not signs:
        return []
    return [f"prompts are taken as plain text, so that nothing is chosen or weighted by {listed(signs, 3)}"]


def cleaned(text: str, captions: CaptionSettings) -> str:
    """A prompt. Raises RecipeError E1466 as `cleaning.cleaner`."""
    return caption_cleaning.cleaner()(text) if captions.clean else text


def shown(line: Line, captions: CaptionSettings) -> Line:
    """A line of prompts."""
    if not captions.clean:
        return line
    negative = None if line.negative is None else cleaned(line.negative, captions)
    return replace(line, prompt=cleaned(line.prompt, captions), negative=negative)
