"""Captions as lists of tags, encoded as one line of text for a column, and wildcards such as `{a|b}`, of which one
alternative is selected."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from mezzotint.stages import Sample

NO_LIMIT = 2048
"""Default maximum number of characters of a caption of weighted tags."""


@dataclass(frozen=True, slots=True)
class Tags:
    """A caption that is a list: a main text, which stays first, and tags with weights. limit: maximum number of
    characters if tags are drawn by weight."""

    main: str
    tags: tuple[str, ...]
    weights: tuple[float, ...]
    limit: int = NO_LIMIT

    @property
    def is_weighted(self) -> bool:
        """Whether the tags have different weights."""
        return len(set(self.weights)) > 1

    @property
    def text(self) -> str:
        return join_tags(self.main, self.tags)

    @property
    def is_plain(self) -> bool:
        """Whether `text` contains all information."""
        return not self.is_weighted and _split(self.text) == (self.main, self.tags)

    def encoded(self) -> str:
        """Everything as one line of text, for a column."""
        return json.dumps([self.main, self.tags, self.weights, self.limit], ensure_ascii=True)

    @staticmethod
    def decoded(line: str) -> Tags:
        """The inverse of `encoded`."""
        main, tags, weights, limit = json.loads(line)
        return Tags(main, tuple(tags), tuple(weights), limit)

    @staticmethod
    def of(caption: str) -> Tags:
        """Splits a plain caption at its commas; the parts are stripped and have equal weights."""
        main, tags = _split(caption)
        return Tags(main, tags, (1.0,) * len(tags))


def add_around(sample: Sample, prefix: str, suffix: str) -> Sample:
    """Puts texts before and after a sample's captions, separated by spaces, as kohya's `caption_prefix` and
    `caption_suffix`: as if they were in the caption files."""
    sample = _rewrite(sample, lambda text: f"{prefix} {text}".strip()) if prefix else sample
    if not suffix:
        return sample
    overrides = dict(sample.overrides)
    if "tags" in overrides:
        tags = Tags.decoded(overrides["tags"])
        changed = replace(tags, tags=(*tags.tags[:-1], f"{tags.tags[-1]} {suffix}")) if tags.tags else None
        overrides["tags"] = (changed or replace(tags, main=f"{tags.main} {suffix}".strip())).encoded()
    captions = tuple(f"{text} {suffix}".strip() for text in sample.captions)
    return replace(sample, captions=captions, overrides=tuple(overrides.items()))


def apply_template(sample: Sample, template: str, trigger: str) -> Sample:
    """Applies a template with `{trigger}` and `{caption}` to a sample's captions. For an empty caption the separators
    before it are removed, too; a template without `{caption}` gives one caption, without tags."""

    def fill(text: str) -> str:
        form = template if text else re.sub(r"[\s,]*\{caption\}", "", template).lstrip(" ,")
        # in one pass: braces in a caption are not replaced
        return re.sub(r"\{(trigger|caption)\}", lambda match: trigger if match[1] == "trigger" else text, form).strip()

    if "{caption}" not in template:
        others = tuple(item for item in sample.overrides if item[0] != "tags")
        sample = replace(sample, captions=("",), overrides=others)
    return _rewrite(sample, fill)


def _rewrite(sample: Sample, change: Callable[[str], str]) -> Sample:
    """Changes a sample's captions, and the main texts of its tags."""
    overrides = dict(sample.overrides)
    if "tags" in overrides:
        tags = Tags.decoded(overrides["tags"])
        overrides["tags"] = replace(tags, main=change(tags.main)).encoded()
    return replace(sample, captions=tuple(map(change, sample.captions)), overrides=tuple(overrides.items()))


def join_tags(main: str, tags: Sequence[str]) -> str:
    """Joins the parts of a caption; omits an empty main text."""
    return ", ".join([main, *tags] if main else tags)


def _split(caption: str) -> tuple[str, tuple[str, ...]]:
    main, *tags = (part.strip() for part in caption.split(","))
    return main, tuple(tags)


def resolve_wildcards(caption: str, choose: Callable[[int, int], int]) -> str:
    """Resolves each wildcard `{a|b}`. choose: (number of the wildcard, from 0; number of alternatives) → index of the
    alternative. `{{` and `}}` become braces; `{}` stays."""
    text = caption.replace("{{", "\0<").replace("}}", "\0>")  # no caption contains NUL
    numbers = iter(range(len(text)))

    def resolve(match: re.Match[str]) -> str:
        alternatives = match[1].split("|")
        return alternatives[choose(next(numbers), len(alternatives))]

    return re.sub(r"\{([^}]+)\}", resolve, text).replace("\0<", "{").replace("\0>", "}")


def choose_first_alternatives(caption: str) -> str:
    """Resolves each wildcard to its first alternative."""
    return resolve_wildcards(caption, lambda number, count: 0)
