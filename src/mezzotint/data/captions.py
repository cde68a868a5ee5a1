"""Which caption a visit is trained with: a choice among the sample's captions, the order of its tags, then dropout. All
are drawn by address, so that they depend on no worker, rank or history. It stands between the plan and the batch.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass

from mezzotint import draws

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
        """The caption in the order that it was written in."""
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


def choose(captions: Sequence[str], *, seed: int, epoch: int, key_hash: int, visit: int, dropout: float) -> str:
    """The caption of one visit.

    captions: what the catalogue holds for the sample; none at all counts as the empty caption. seed, epoch: as
    `plan.addressed` gives them. key_hash: the catalogue's 64-bit number of the sample. visit: from `Epoch.visit`.
    dropout: the chance, 0 to 1, that the empty caption takes its place. Choice and dropout are independent draws:
    another dropout leaves the choices as they were.
    """
    if not captions:
        return ""
    if is_dropped(seed=seed, epoch=epoch, key_hash=key_hash, visit=visit, dropout=dropout):
        return ""
    if len(captions) == 1:
        return captions[0]
    return captions[draws.below(draws.key(seed, "caption", epoch, key_hash, visit), len(captions))]


def is_dropped(*, seed: int, epoch: int, key_hash: int, visit: int, dropout: float) -> bool:
    """Whether the caption of a visit gives way to the empty one. Parameters as for `choose`."""
    return dropout > 0 and draws.uniform(draws.key(seed, "drop", epoch, key_hash, visit)) < dropout


def shuffled(tags: Tags, *, address: int, keep: int = 0) -> str:
    """A caption with its tags in the order drawn at an address (`draws.key`).

    The main text and the first `keep` tags stay. Tags of equal weight come in any order. Tags of unequal weight are
    drawn one after the other in proportion to their weights, until the next would make the caption longer than
    `tags.limit`.
    """
    keep = min(keep, len(tags.tags))
    order = [*range(keep), *sorted(range(keep, len(tags.tags)), key=lambda i: _waiting(address, i, tags.weights[i]))]
    in_order = [tags.tags[i] for i in order]
    if tags.is_weighted:
        in_order = in_order[: _fitting(tags.main, in_order, tags.limit)]
    return joined(tags.main, in_order)


def kept_address(key_hash: int, number: int) -> int:
    """The address of one of the orders of tags that a text cache keeps: the same in every epoch and run."""
    return draws.key(number, "tags-kept", key_hash)


def joined(main: str, tags: Sequence[str]) -> str:
    """A caption of its parts; an empty main text is left out."""
    return ", ".join([main, *tags] if main else tags)


def _cut(caption: str) -> tuple[str, tuple[str, ...]]:
    main, *tags = (part.strip() for part in caption.split(","))
    return main, tuple(tags)


def _waiting(address: int, number: int, weight: float) -> tuple[float, float]:
    """Sorting by exponential waiting times is drawing without replacement, in proportion to their rates (Efraimidis and
    Spirakis 2006)."""
    drawn = -math.log1p(-draws.uniform(draws.key(address, "tag", number)))
    return (drawn / weight if weight else math.inf, drawn)


def _fitting(main: str, tags: Sequence[str], limit: int) -> int:
    """How many of the tags, from the first on, make no caption of more than `limit` characters."""
    length = len(main) if main else -2
    for count, tag in enumerate(tags):
        length += 2 + len(tag)
        if length > limit:
            return count
    return len(tags)
