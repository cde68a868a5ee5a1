"""Prompts as captions are shown: what cleans the one cleans the other."""

from __future__ import annotations

from dataclasses import replace

from mezzotint.data import cleaning
from mezzotint.recipe.data import CaptionSettings
from mezzotint.sampling.prompt_file import Line


def cleaned(text: str, captions: CaptionSettings) -> str:
    """A prompt. Raises RecipeError E1466 as `cleaning.cleaner`."""
    return cleaning.cleaner()(text) if captions.clean else text


def shown(line: Line, captions: CaptionSettings) -> Line:
    """A line of prompts."""
    if not captions.clean:
        return line
    negative = None if line.negative is None else cleaned(line.negative, captions)
    return replace(line, prompt=cleaned(line.prompt, captions), negative=negative)
