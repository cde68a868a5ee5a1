"""Captions that a text encoder cuts because they are too long: counted by its own tokenizer before a run begins.

A token is a byte at least, so most captions need no look; of very many long ones some thousands are looked at, and the
rest is estimated, which is said. The result is kept in the data set's memo: the same captions and tokenizer load no
tokenizer again."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import numpy as np

from mezzotint.data.catalogue.catalogue import Catalogue
from mezzotint.data.findings.captions import LostWords
from mezzotint.data.schedule.captions import Changes, unchanged
from mezzotint.errors import WeightsError
from mezzotint.families.base import ModelFamily
from mezzotint.settings.sections.captions import CaptionSettings

_LOOKED_AT = 2000  # captions; some tenths of a second
_MANY = 500
_VERSION = 1
_MEASURED = 20_000
_KEPT = 64  # results in one memo


def token_lengths(
    family: ModelFamily, catalogue: Catalogue, settings: CaptionSettings
) -> tuple[tuple[int, ...], int] | None:
    """Tokens of the first captions of at most 20,000 samples, evenly spread, those of begin and end among them, and how
    many the text encoder reads. None where the model's tokenizer is not there."""
    changes = Changes.of(settings)
    rows = np.unique(np.linspace(0, len(catalogue) - 1, min(len(catalogue), _MEASURED)).astype(np.int64))
    counts: list[int] = []
    limit = 0
    try:
        for chunk in np.array_split(rows, max(1, -(-len(rows) // _MANY))):
            texts = [(*catalogue.captions(row), "")[0] for row in chunk.tolist()]
            lengths, limit = family.token_counts([unchanged(text, changes) for text in texts])
            counts += lengths
    except WeightsError:
        return None
    return (tuple(counts), limit) if limit else None


def lost_words(
    family: ModelFamily, catalogue: Catalogue, settings: CaptionSettings, known_by: str = ""
) -> LostWords | None:
    """Counts over all samples, the first of each wildcard. None where the model's tokenizer is not there: embeddings
    come from elsewhere then. known_by: what the answer depends on besides the data set and the settings, for it to be
    remembered."""
    changes = Changes.of(settings)
    key = (_VERSION, catalogue.folder.name, catalogue.fingerprint, changes, known_by)
    lost = _known(catalogue.memo.get_json("lost words", key)) if known_by else None
    if lost is None:
        lost = _counted(family, catalogue, changes)
        if known_by and lost is not None:
            catalogue.memo.put("lost words", key, json.dumps(asdict(lost)).encode("ascii"), keep=_KEPT)
    return lost


def _known(content: Any) -> LostWords | None:
    try:
        tokens = {int(row): int(count) for row, count in content.pop("tokens").items()}
        return LostWords(tokens, **{name: int(number) for name, number in content.items()})
    except (ValueError, KeyError, TypeError, AttributeError):
        return None  # none, or none of ours


def _counted(family: ModelFamily, catalogue: Catalogue, changes: Changes) -> LostWords | None:
    try:
        rows, numbers = catalogue.long_captions(_room(family))
        chosen = np.unique(np.linspace(0, len(numbers) - 1, min(len(numbers), _LOOKED_AT)).astype(np.int64))
        tokens: dict[int, int] = {}
        cut = 0
        for chunk in np.array_split(chosen, max(1, -(-len(chosen) // _MANY))):
            lost = family.lost_tokens([unchanged(catalogue.caption(i), changes) for i in numbers[chunk].tolist()])
            for row, count in zip(rows[chunk].tolist(), lost, strict=True):
                if count:
                    cut += 1
                    tokens[row] = max(count, tokens.get(row, 0))
    except WeightsError:
        return None
    return LostWords(tokens, cut, len(chosen), len(numbers), catalogue.num_captions)


def _room(family: ModelFamily) -> int:
    """Bytes below which a caption always fits: the tokens that the encoder reads, told by what it cuts off a very long
    text of one-token words."""
    half, whole = family.lost_tokens(["a " * 2000, "a " * 4000])
    each = (whole - half) // 2000
    return 4000 * each - whole if whole else 8000
