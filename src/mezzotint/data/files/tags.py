"""A caption as a list of tags, and as one line of text for a column; and its wildcards, of which one of `{a|b}` is
taken: what formats write down and what the draws of a visit change."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from mezzotint.stages import Sample

NO_LIMIT = 2048
"""Characters of a caption of weighted tags, unless it has a limit of its own."""


@dataclass(frozen=True, slots=True)
class Tags:
    """A caption that is a list: a main text, which stays first, and tags with their weights. limit: characters of the
    whole when tags are drawn by weight."""

    main: str
    tags: tuple[str, ...]
    weights: tuple[float, ...]
    limit: int = NO_LIMIT

    @property
    def is_weighted(self) -> bool:
        """Whether some tags weigh more than others."""
        return len(set(self.weights)) > 1

    @property
    def text(self) -> str:
        return joined(self.main, self.tags)

    @property
    def is_plain(self) -> bool:
        """Whether the text alone says as much."""
        return not self.is_weighted and _cut(self.text) == (self.main, self.tags)

    def encoded(self) -> str:
        """All of it as one line of text, for a column."""
        return json.dumps([self.main, self.tags, self.weights, self.limit], ensure_ascii=True)

    @staticmethod
    def decoded(line: str) -> Tags:
        """The reverse of `encoded`."""
        main, tags, weights, limit = json.loads(line)
        return Tags(main, tuple(tags), tuple(weights), limit)

    @staticmethod
    def of(caption: str) -> Tags:
        """A plain caption, cut at its commas; its parts are stripped and weigh the same."""
        main, tags = _cut(caption)
        return Tags(main, tags, (1.0,) * len(tags))


def prefixed(sample: Sample, prefix: str) -> Sample:
    """A sample whose captions begin with a text, a space behind it, as kohya's `caption_prefix`: as if it stood in the
    caption files."""
    return _rewritten(sample, lambda text: f"{prefix} {text}".rstrip())


def templated(sample: Sample, template: str, trigger: str) -> Sample:
    """A sample with captions by a template: its `{trigger}` and `{caption}` are filled. Of an empty caption the
    separators before it go, too; without a place for captions there is one caption, and no tags."""

    def filled(text: str) -> str:
        own = template if text else re.sub(r"[\s,]*\{caption\}", "", template).lstrip(" ,")
        # in one pass: braces in a caption are its own
        return re.sub(r"\{(trigger|caption)\}", lambda place: trigger if place[1] == "trigger" else text, own).strip()

    if "{caption}" not in template:
        kept = tuple(item for item in sample.overrides if item[0] != "tags")
        sample = replace(sample, captions=("",), overrides=kept)
    return _rewritten(sample, filled)


def _rewritten(sample: Sample, change: Callable[[str], str]) -> Sample:
    """A sample with captions, and main texts of tags, that are others."""
    overrides = dict(sample.overrides)
    if "tags" in overrides:
        tags = Tags.decoded(overrides["tags"])
        overrides["tags"] = replace(tags, main=change(tags.main)).encoded()
    return replace(sample, captions=tuple(map(change, sample.captions)), overrides=tuple(overrides.items()))


def joined(main: str, tags: Sequence[str]) -> str:
    """A caption of its parts; an empty main text is left out."""
    return ", ".join([main, *tags] if main else tags)


def _cut(caption: str) -> tuple[str, tuple[str, ...]]:
    main, *tags = (part.strip() for part in caption.split(","))
    return main, tuple(tags)


def filled(caption: str, choose: Callable[[int, int], int]) -> str:
    """A caption with one of each `{a|b}`. choose: which of so many (its second argument), for the wildcard of a number
    (its first, from 0). `{{` and `}}` become braces; `{}` stays."""
    text = caption.replace("{{", "\0<").replace("}}", "\0>")  # no caption holds NUL
    numbers = iter(range(len(text)))

    def one(match: re.Match[str]) -> str:
        among = match[1].split("|")
        return among[choose(next(numbers), len(among))]

    return re.sub(r"\{([^}]+)\}", one, text).replace("\0<", "{").replace("\0>", "}")


def first_of_each(caption: str) -> str:
    """A caption where nothing is drawn: the first of each wildcard."""
    return filled(caption, lambda number, count: 0)
