"""The pictures that a run has drawn: by prompt and step, what they say of themselves, and small copies of them."""

from __future__ import annotations

import io
import re
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from PIL import Image

from mezzotint import outside
from mezzotint.board.reading.runs import children
from mezzotint.board.reading.tails import shown

KINDS = {
    ".png": "image/png", ".jpg": "image/jpeg", ".jpeg": "image/jpeg", ".webp": "image/webp", ".gif": "image/gif",
    ".mp4": "video/mp4",
}  # fmt: skip
"""Endings of files that are shown as they are, with their kinds. Everything else is made into a picture, or is text."""

MOST_PIXELS = 120_000_000

_UNREADABLE = (
    OSError, ValueError, SyntaxError, TypeError, ArithmeticError, LookupError, EOFError, struct.error,
    Image.DecompressionBombError,
)  # fmt: skip
"""What Pillow raises for files that are damaged or made to be."""

_STEP = re.compile(r"step-(\d{8,})")
_NAME = re.compile(r"(\d{2,})-(raw|shadow)\.png")
_TEXT = 8_000

_MOST_STEPS = 500
"""Steps whose previews are shown. Of more, that many evenly spaced ones are, with the first and the last."""

_MOST_PROMPTS = 100
"""Prompts whose previews are shown, the first ones."""


@dataclass(frozen=True, slots=True)
class PreviewPictures:
    """steps: at which pictures were drawn, in order. prompts: by number, as the newest picture says. drawn: "STEP/NAME"
    of the pictures that are there; clips: of those with a clip beside them."""

    steps: list[int]
    prompts: dict[int, str]
    drawn: list[str]
    clips: list[str]

    def as_json(self) -> dict[str, Any]:
        """For the page."""
        return {
            "steps": self.steps,
            "prompts": [{"number": number, "text": text} for number, text in sorted(self.prompts.items())],
            "drawn": self.drawn,
            "clips": self.clips,
        }


def previews(path: Path) -> PreviewPictures:
    """What lies in a run's `samples/`, of at most `_MOST_STEPS` steps and `_MOST_PROMPTS` prompts."""
    steps, drawn, clips = [], [], []
    newest: dict[int, Path] = {}
    folders = sorted(folder for folder in children(path / "samples", within=path) if _STEP.fullmatch(folder.name))
    if len(folders) > _MOST_STEPS:
        folders = [folders[round(i * (len(folders) - 1) / (_MOST_STEPS - 1))] for i in range(_MOST_STEPS)]
    for folder in folders:
        step = _STEP.fullmatch(folder.name)
        names = {entry.name for entry in children(folder, within=path)}
        matches = sorted(filter(None, map(_NAME.fullmatch, names)), key=lambda match: match.string)
        matches = [match for match in matches if int(match[1]) < _MOST_PROMPTS]
        if step is None or not matches:
            continue
        steps.append(int(step[1]))
        for match in matches:
            drawn.append(f"{step[1]}/{match.string}")
            if match.string.replace(".png", ".mp4") in names:
                clips.append(drawn[-1])
            newest[int(match[1])] = folder / match.string
    return PreviewPictures(sorted(steps), {number: caption(file) for number, file in newest.items()}, drawn, clips)


def newest(path: Path) -> Path | None:
    """The first picture of the last step, None before there is one."""
    for folder in sorted(children(path / "samples", within=path), reverse=True):
        if _STEP.fullmatch(folder.name):
            names = sorted(entry for entry in children(folder, within=path) if _NAME.fullmatch(entry.name))
            if names:
                return names[0]
    return None


def caption(file: Path) -> str:
    """The prompt that a picture was drawn from, as it says itself; "" for one that does not."""
    return facts(file).get("prompt", "")


def facts(file: Path) -> dict[str, str]:
    """How a picture was drawn, as it says itself, in text that can be shown."""
    try:
        with outside.open_plain(file) as opened, Image.open(opened) as image:
            own = outside.parse_json(str(getattr(image, "text", {}).get("mezzotint", "{}")))
    except _UNREADABLE:
        return {}
    return {shown(str(n)): shown(str(v))[:_TEXT] for n, v in own.items()} if isinstance(own, dict) else {}


def small(file: Path, side: int, *, kind: str = "WEBP") -> bytes | None:
    """A copy of a picture whose sides are at most `side`; None for what is no picture that can be read."""
    try:
        with outside.open_plain(file) as opened, Image.open(opened) as image:
            if image.width * image.height > MOST_PIXELS:
                return None
            image.draft("RGB", (side, side))
            image.thumbnail((side, side))
            copy = image.convert("RGB")
    except _UNREADABLE:
        return None
    content = io.BytesIO()
    copy.save(content, kind, quality=82)
    return content.getvalue()
