"""One caption text, as in a file or a table cell: which of its lines an operation changes, and the text afterwards."""

from __future__ import annotations

import re
from collections.abc import Sequence

from mezzotint.data.editing.operations import Lines, Operation
from mezzotint.settings.sections.captions import CaptionSettings

_ENDS = re.compile(r"(\r\n|\r|\n)")


def shown_text(text: str, settings: CaptionSettings) -> str:
    """The editable part of a text: with `captions.lines=first` its first line, otherwise all lines."""
    lines = [line for line in map(str.strip, _ENDS.split(text)[::2]) if line]
    return "\n".join(lines[:1] if settings.lines == "first" else lines)


def edit_text(text: str, operation: Operation, settings: CaptionSettings) -> str:
    """The text after an operation: on its first line, on each line, or on all lines as one caption, by
    `captions.lines`. Other lines, empty ones and line ends stay as they are."""
    pieces = _ENDS.split(text)
    numbers = [i for i in range(0, len(pieces), 2) if pieces[i].strip()]
    if settings.lines == "first":
        numbers = numbers[:1]
    before = tuple(pieces[i].strip() for i in numbers)
    if settings.lines == "random" and not operation.replaces:
        after: Lines = tuple(line for one in before or ("",) for line in operation.change((one,) if one else ()))
    else:
        after = operation.change(before)
    if after == before:
        return text
    if len(after) == len(before):
        for i, line in zip(numbers, after, strict=True):
            pieces[i] = line
        return "".join(pieces)
    end = pieces[1] if len(pieces) > 1 else "\n"
    if settings.lines == "first" and numbers:
        pieces[numbers[0]] = end.join(after)
        return "".join(pieces)
    return end.join(after) + (end if after and len(pieces) > 1 and not pieces[-1].strip() else "")


def edit_alternatives(texts: Sequence[str], operation: Operation, settings: CaptionSettings) -> list[str]:
    """The alternatives of a table cell after an operation on each; one that replaces gives one for each of its
    lines."""
    if operation.replaces:
        return list(operation.change(()))
    return [edit_text(text, operation, settings) for text in texts]
