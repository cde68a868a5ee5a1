"""The layers of the format `everydream`: what one file says of the pictures it holds for, and how layers become one.

A layer is read from a mapping (yaml, an entry of a manifest), a caption text, or a file's name. Stronger layers lie
over weaker ones: a folder's globals, its local file, a picture's own files.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from mezzotint.errors import did_you_mean

Place = tuple[str | int, ...]
"""Where a value lies in its mapping: ("tags", 0, "weight")."""

NAMELESS = "default_batch"
"""What EveryDream2 calls the batch of pictures that have no name for theirs."""

_WORDS = {"yes": True, "on": True, "no": False, "off": False}


class Malformed(Exception):
    """Why a layer cannot be read. place: where in its mapping."""

    def __init__(self, what: str, place: Place = ()) -> None:
        super().__init__(what)
        self.place = place


@dataclass(frozen=True, slots=True)
class Layer:
    """What a file says; None and nothing where it says nothing. prompts: main prompts, of which the first counts.
    tags: (text, weight)."""

    prompts: tuple[str, ...] = ()
    tags: tuple[tuple[str, float], ...] = ()
    multiply: float | None = None
    cond_dropout: float | None = None
    flip_p: float | None = None
    loss_scale: float | None = None
    rating: float | None = None
    max_caption_length: int | None = None
    batch_id: str | None = None
    shuffle_tags: bool = False

    def over(self, weaker: Layer) -> Layer:
        """This layer upon a weaker one: values that are set stay; prompts and tags come before the weaker's, each
        once; tags are shuffled if either says so."""
        values = {
            field.name: getattr(weaker if getattr(self, field.name) is None else self, field.name)
            for field in dataclasses.fields(Layer)
        }
        values["prompts"] = tuple(dict.fromkeys(self.prompts + weaker.prompts))
        values["tags"] = tuple(dict.fromkeys(self.tags + weaker.tags))
        values["shuffle_tags"] = self.shuffle_tags or weaker.shuffle_tags
        return Layer(**values)

    def with_name(self, name: str) -> Layer:
        """This layer, and where it has no main prompt that of the file's name: what stands before its first
        underscore, cut at commas."""
        return self if self.prompts else of_text(PurePosixPath(name).stem.partition("_")[0]).over(self)


def of_text(text: str) -> Layer:
    """A caption: cut at commas, the first part is the main prompt, the others are tags. An empty text says nothing."""
    if not text.strip():
        return Layer()
    main, *tags = (part.strip() for part in text.split(","))
    return Layer((main,) if main else (), tuple((tag, 1.0) for tag in tags))


def of_mapping(
    mapping: Mapping[str, Any], *, caption: Callable[[str], str], place: Place = (), also: tuple[str, ...] = ()
) -> Layer:
    """What a mapping says. caption: turns the value of `caption` into the caption's text. also: keys that are the
    caller's business. Raises Malformed for the first thing that is wrong."""
    values: dict[str, Any] = {}
    inner = Layer()
    for key, value in mapping.items():
        at = (*place, key)
        if key in also or value is None:
            continue
        if key == "caption":
            inner = (
                of_mapping(value, caption=caption, place=at)
                if isinstance(value, Mapping)
                else of_text(caption(_text(value, at)))
            )
        elif key == "main_prompt":
            texts = value if isinstance(value, list) else [value]
            values["prompts"] = tuple(dict.fromkeys(text for text in (_text(one, at) for one in texts) if text))
        elif key in _READ:
            values[key] = _READ[key](value, at)
        else:
            raise Malformed(_unknown(key, also), at)
    return inner.over(Layer(**values))


def number(text: str) -> float:
    """The number that a text file holds. Raises Malformed."""
    try:
        return _finite(float(text), ())
    except ValueError as error:
        raise Malformed(f"is to hold one number, got {text.strip()[:40]!r}") from error


def checked(key: str, value: float) -> Layer:
    """A layer of one number, from a file named after it. Raises Malformed for one out of range."""
    return Layer(**{key: _READ[key](value, ())})


def _finite(value: Any, at: Place) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise Malformed(f"must be a number, got {value!r}", at)
    return float(value)


def _share(value: Any, at: Place) -> float:
    if not 0 <= (share := _finite(value, at)) <= 1:
        raise Malformed(f"must lie between 0 and 1, got {value!r}", at)
    return share


def _above_0(value: Any, at: Place) -> float | None:
    if (number := _finite(value, at)) < 0:
        raise Malformed(f"must not be below 0, got {value!r}", at)
    return number or None  # EveryDream2 takes 0 for "not set"


def _length(value: Any, at: Place) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise Malformed(f"must be a whole number of characters, got {value!r}", at)
    return value or None


def _switch(value: Any, at: Place) -> bool:
    switch = _WORDS.get(value.lower(), value) if isinstance(value, str) else value
    if not isinstance(switch, bool):
        raise Malformed(f"must be true or false, got {value!r}", at)
    return switch


def _text(value: Any, at: Place) -> str:
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise Malformed(f"must be a text, got {value!r}", at)
    return str(value).strip()


def _name(value: Any, at: Place) -> str | None:
    return _text(value, at) or None


def _tags(value: Any, at: Place) -> tuple[tuple[str, float], ...]:
    if not isinstance(value, list):
        raise Malformed(f"must be a list, got {value!r}", at)
    return tuple(dict.fromkeys(_tag(tag, (*at, number)) for number, tag in enumerate(value)))


def _tag(value: Any, at: Place) -> tuple[str, float]:
    if not isinstance(value, Mapping):
        return _text(value, at), 1.0
    if unknown := value.keys() - {"tag", "weight"}:
        raise Malformed(f"{sorted(unknown)[0]!r} is no key of a tag, which has `tag` and `weight`", at)
    if value.get("tag") is None:
        raise Malformed("a tag without its text; write `- tag: TEXT`", at)
    weight = value.get("weight")
    if weight is not None and _finite(weight, (*at, "weight")) < 0:
        raise Malformed(f"must not be below 0, got {weight!r}", (*at, "weight"))
    return _text(value["tag"], (*at, "tag")), 1.0 if weight is None else float(weight)


_READ: Mapping[str, Callable[[Any, Place], Any]] = {
    "tags": _tags,
    "multiply": _above_0,
    "cond_dropout": _share,
    "flip_p": _share,
    "loss_scale": _finite,
    "rating": _above_0,
    "max_caption_length": _length,
    "batch_id": _name,
    "shuffle_tags": _switch,
}


def _unknown(key: str, also: tuple[str, ...]) -> str:
    known = ["main_prompt", "caption", *_READ, *also]
    return f"unknown key; {did_you_mean(key, known, 'there are ' + ', '.join(known))}"
