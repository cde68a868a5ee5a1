"""The previews of a run: by prompt and step, their metadata, and small copies of them."""

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
from mezzotint.board.reading.tails import make_printable

KINDS = {
    ".png": "image/png", ".jpg": "image/jpeg", ".jpeg": "image/jpeg", ".webp": "image/webp", ".gif": "image/gif",
    ".mp4": "video/mp4",
}  # fmt: skip
"""Suffixes and MIME types of files that are sent as they are."""

MOST_PIXELS = 120_000_000

_UNREADABLE = (
    OSError, ValueError, SyntaxError, TypeError, ArithmeticError, LookupError, EOFError, struct.error,
    Image.DecompressionBombError,
)  # fmt: skip
"""What Pillow raises for damaged and malicious files."""

_STEP = re.compile(r"step-(\d{8,})")
_NAME = re.compile(r"(\d{2,})-(raw|shadow)\.png")
_TEXT = 8_000

MOST_STEPS = 500
"""Steps whose previews are shown at most; of more, evenly spaced ones with the first and the last."""

MOST_PROMPTS = 100
"""Prompts whose previews are shown at most."""


@dataclass(frozen=True, slots=True)
class PreviewImages:
    """steps: steps with previews, in order. prompts: by number, from the metadata of the newest image. drawn:
    "STEP/NAME" of the existing images; clips: of those with a clip next to them."""

    steps: list[int]
    prompts: dict[int, str]
    drawn: list[str]
    clips: list[str]

    def as_json(self) -> dict[str, Any]:
        """JSON for the page."""
        return {
            "steps": self.steps,
            "prompts": [{"number": number, "text": text} for number, text in sorted(self.prompts.items())],
            "drawn": self.drawn,
            "clips": self.clips,
        }


def previews(path: Path) -> PreviewImages:
    """The previews in a run's `samples/`, of at most `MOST_STEPS` steps and `MOST_PROMPTS` prompts."""
    steps, drawn, clips = [], [], []
    newest: dict[int, Path] = {}
    folders = sorted(folder for folder in children(path / "samples", within=path) if _STEP.fullmatch(folder.name))
    if len(folders) > MOST_STEPS:
        folders = [folders[round(i * (len(folders) - 1) / (MOST_STEPS - 1))] for i in range(MOST_STEPS)]
    for folder in folders:
        step = _STEP.fullmatch(folder.name)
        names = {entry.name for entry in children(folder, within=path)}
        matches = sorted(filter(None, map(_NAME.fullmatch, names)), key=lambda match: match.string)
        matches = [match for match in matches if int(match[1]) < MOST_PROMPTS]
        if step is None or not matches:
            continue
        steps.append(int(step[1]))
        for match in matches:
            drawn.append(f"{step[1]}/{match.string}")
            if match.string.replace(".png", ".mp4") in names:
                clips.append(drawn[-1])
            newest[int(match[1])] = folder / match.string
    return PreviewImages(sorted(steps), {number: caption(file) for number, file in newest.items()}, drawn, clips)


def newest(path: Path) -> Path | None:
    """The first image of the last step with previews; None before the first preview."""
    for folder in sorted(children(path / "samples", within=path), reverse=True):
        if _STEP.fullmatch(folder.name):
            names = sorted(entry for entry in children(folder, within=path) if _NAME.fullmatch(entry.name))
            if names:
                return names[0]
    return None


def caption(file: Path) -> str:
    """The prompt in an image's metadata; "" if there is none."""
    return facts(file).get("prompt", "")


def facts(file: Path) -> dict[str, str]:
    """The sampling parameters in an image's metadata, as printable text."""
    try:
        with outside.open_plain(file) as opened, Image.open(opened) as image:
            metadata = outside.parse_json(str(getattr(image, "text", {}).get("mezzotint", "{}")))
    except _UNREADABLE:
        return {}
    return (
        {make_printable(str(n)): make_printable(str(v))[:_TEXT] for n, v in metadata.items()}
        if isinstance(metadata, dict)
        else {}
    )


def downscale(file: Path, side: int, *, kind: str = "WEBP") -> bytes | None:
    """A copy of an image whose sides are at most `side`; None for a file that is not a readable image."""
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
