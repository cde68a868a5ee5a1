"""The caption of a visit: selection among the sample's captions, wildcards, tag dropout and order, and caption dropout.
All are drawn by address and depend on no worker, rank or history. Between the plan and the batch.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from mezzotint import draws
from mezzotint.data.files.tags import Tags, choose_first_alternatives, join_tags, resolve_wildcards
from mezzotint.data.schedule.plan import Visit
from mezzotint.settings.sections.captions import CaptionSettings
from mezzotint.settings.sections.data import DataSettings

if TYPE_CHECKING:
    from mezzotint.data.catalogue.catalogue import Catalogue


@dataclass(frozen=True, slots=True)
class Changes:
    """Random changes of captions at each visit. shuffle: shuffles tags. keep: number of tags after the first part that
    stay in place, −1 for none and not the first part either. tag_dropout: probability that another tag is dropped.
    wildcards: selects one of `{a|b}`. keep_separator, second_separator: of `data.captions`."""

    shuffle: bool = False
    keep: int = 0
    tag_dropout: float = 0.0
    wildcards: bool = False
    keep_separator: str = ""
    second_separator: str = ""

    @classmethod
    def of(cls, settings: CaptionSettings, *, shuffles_own: bool = False) -> Changes:
        """The changes for a sample. shuffles_own: whether its own settings enable shuffling."""
        shuffle = settings.shuffle_tags or shuffles_own
        return cls(
            shuffle, settings.keep_tags, settings.tag_dropout, settings.wildcards, settings.keep_separator,
            settings.second_separator,
        )  # fmt: skip

    @property
    def of_tags(self) -> bool:
        """Whether tags are shuffled or dropped."""
        return self.shuffle or self.tag_dropout > 0

    @property
    def are_any(self) -> bool:
        return self.of_tags or self.wildcards


@dataclass(frozen=True, slots=True)
class DrawnCaptions:
    """Random captions of one sample. line: its weighted tags (`Tags.encoded`), or "". key_hash: for its draws. cached:
    number of variants of each caption in a text cache."""

    changes: Changes
    line: str
    key_hash: int
    cached: int

    @classmethod
    def of(cls, catalogue: Catalogue, row: int, settings: DataSettings) -> DrawnCaptions:
        """The captions of a row."""
        overrides = catalogue.overrides
        changes = Changes.of(settings.captions, shuffles_own=bool(overrides.shuffle_tags[row]))
        return cls(changes, overrides.tags_of(row), int(catalogue.key_hash[row]), settings.cache.shuffles)

    def at_visit(self, caption: str, visit: Visit, *, is_cached: bool) -> str:
        """A caption as drawn for a visit, or, with a text cache, one of the cached variants."""
        if not caption or not self.changes.are_any:
            return caption
        address = visit.draw("tags")
        if is_cached:
            address = cached_shuffle_key(self.key_hash, draws.below(address, self.cached))
        return apply_changes(caption, self.line, self.changes, address=address)

    def list_cached(self, captions: Sequence[str]) -> tuple[str, ...]:
        """All variants of captions with a text cache: the captions themselves, and each cached variant if any."""
        if not self.changes.are_any:
            return tuple(captions)
        keys = [cached_shuffle_key(self.key_hash, number) for number in range(self.cached)]
        forms = (apply_changes(caption, self.line, self.changes, address=key) for caption in captions for key in keys)
        return (*(without_changes(caption, self.changes) for caption in captions), *forms)


def apply_changes(caption: str, line: str, changes: Changes, *, address: int) -> str:
    """A caption as drawn at an address (`draws.key`). line: its weighted tags (`Tags.encoded`), which replace it; empty
    for a plain caption.

    Wildcards are resolved first, then tags are dropped, then shuffled, as in kohya's scripts.
    """
    if changes.wildcards and not line:
        caption = resolve_wildcards(caption, partial(_wildcard, address))
    if not ((line and changes.are_any) or changes.of_tags):
        return caption
    if line:
        tags = Tags.decoded(line)
        return _change_tags(_resolve_wildcards(tags, address) if changes.wildcards else tags, changes, address)
    fixed = _split_fixed(caption, changes)
    before, loose, after = fixed or ("", caption, "")
    tags = Tags.of(loose)
    if changes.keep < 0 or fixed:
        tags = replace(tags, main="", tags=(tags.main, *tags.tags), weights=(1.0, *tags.weights))
    changed = _change_tags(tags, replace(changes, keep=0 if fixed else max(changes.keep, 0)), address)
    return _unite(", ".join(filter(None, (before, changed, after))), changes)


def _change_tags(tags: Tags, changes: Changes, address: int) -> str:
    """The text of tags that are dropped, then shuffled."""
    if changes.tag_dropout:
        tags = drop_tags(tags, address=address, keep=changes.keep, dropout=changes.tag_dropout)
    return shuffle_tags(tags, address=address, keep=changes.keep) if changes.shuffle else tags.text


def _split_fixed(caption: str, changes: Changes) -> tuple[str, str, str] | None:
    """The parts of a caption before the separator, which stay, those to change, and those after a second separator;
    None without one."""
    if not changes.keep_separator or changes.keep_separator not in caption:
        return None
    before, loose, *after = (
        ", ".join(part.strip() for part in text.split(",") if part.strip())
        for text in caption.split(changes.keep_separator, 2)
    )
    return before, loose, after[0] if after else ""


def _unite(caption: str, changes: Changes) -> str:
    return caption.replace(changes.second_separator, ",") if changes.second_separator else caption


def without_changes(caption: str, changes: Changes) -> str:
    """A caption without random changes, for held-out images and previews: the first alternative of each wildcard, and
    commas instead of separators."""
    if changes.wildcards:
        caption = choose_first_alternatives(caption)
    if not changes.of_tags:
        return caption
    fixed = _split_fixed(caption, changes)
    return _unite(", ".join(filter(None, fixed)) if fixed else caption, changes)


def _wildcard(address: int, number: int, count: int) -> int:
    return draws.below(draws.key(address, "wildcard", number), count)


def _resolve_wildcards(tags: Tags, address: int) -> Tags:
    """Resolves wildcards in weighted tags, with separate draws for each tag."""
    texts = enumerate((tags.main, *tags.tags))
    parts = [resolve_wildcards(text, partial(_wildcard, draws.key(address, "place", index))) for index, text in texts]
    return replace(tags, main=parts[0], tags=tuple(parts[1:]))


def drop_tags(tags: Tags, *, address: int, keep: int, dropout: float) -> Tags:
    """A caption without the tags that are dropped at an address, each with the probability `dropout`; the main text and
    the first `keep` tags stay."""
    remaining = [
        i for i in range(len(tags.tags)) if i < keep or draws.uniform(draws.key(address, "tag-dropout", i)) >= dropout
    ]
    return replace(tags, tags=tuple(tags.tags[i] for i in remaining), weights=tuple(tags.weights[i] for i in remaining))


def choose(captions: Sequence[str], visit: Visit, *, dropout: float) -> str:
    """Selects the caption of one visit; without captions, the empty caption.

    dropout: the probability, 0 to 1, of the empty caption. Selection and dropout are independent draws: another dropout
    does not change the selection.
    """
    if not captions or is_dropped(visit, dropout):
        return ""
    return captions[draws.below(visit.draw("caption"), len(captions)) if len(captions) > 1 else 0]


def is_dropped(visit: Visit, dropout: float) -> bool:
    """Whether the caption of a visit is replaced by the empty one."""
    return dropout > 0 and draws.uniform(visit.draw("drop")) < dropout


def is_dropped_in(epoch: int, every: int) -> bool:
    """Whether all captions of an epoch, counted from 0, are dropped. every: of `data.captions.dropout_every`."""
    return every > 0 and (epoch + 1) % every == 0


def shuffle_tags(tags: Tags, *, address: int, keep: int = 0) -> str:
    """A caption with its tags in the order drawn at an address (`draws.key`).

    The main text and the first `keep` tags stay in place. Tags of equal weight are shuffled uniformly. Tags of unequal
    weight are drawn one after the other in proportion to their weights, until the next would make the caption longer
    than `tags.limit`.
    """
    keep = min(keep, len(tags.tags))
    order = [
        *range(keep),
        *sorted(range(keep, len(tags.tags)), key=lambda i: _waiting_time(address, i, tags.weights[i])),
    ]
    in_order = [tags.tags[i] for i in order]
    if tags.is_weighted:
        in_order = in_order[: _num_fitting(tags.main, in_order, tags.limit)]
    return join_tags(tags.main, in_order)


def cached_shuffle_key(key_hash: int, number: int) -> int:
    """The address of a cached variant of a caption: the same in every epoch and run."""
    return draws.key(number, "tags-kept", key_hash)


def _waiting_time(address: int, number: int, weight: float) -> tuple[float, float]:
    """Sorting by exponential waiting times is drawing without replacement, in proportion to their rates (Efraimidis and
    Spirakis 2006)."""
    drawn = -math.log1p(-draws.uniform(draws.key(address, "tag", number)))
    return (drawn / weight if weight else math.inf, drawn)


def _num_fitting(main: str, tags: Sequence[str], limit: int) -> int:
    """Number of tags, from the first, with which the caption has at most `limit` characters."""
    length = len(main) if main else -2
    for count, tag in enumerate(tags):
        length += 2 + len(tag)
        if length > limit:
            return count
    return len(tags)
