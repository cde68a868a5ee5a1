"""Captions that the text encoder truncates: counted with its tokenizer before a run starts.

A token has at least one byte, so short captions are not tokenized. Of very many long ones a sample of some thousands is
tokenized, the rest is estimated, and the result records that. It is kept in the data set's memo: the same captions and
tokenizer are not counted again."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import numpy as np

from mezzotint.data.catalogue.catalogue import Catalogue
from mezzotint.data.findings.captions import LostWords
from mezzotint.data.schedule.captions import Changes, without_changes
from mezzotint.errors import WeightsError
from mezzotint.families.base import ModelFamily
from mezzotint.settings.sections.captions import CaptionSettings

_LOOKED_AT = 2000  # captions; some tenths of a second
_CHUNK_SIZE = 500
_VERSION = 1
_MEASURED = 20_000
_MAX_RESULTS = 64  # results in one memo


def token_lengths(
    family: ModelFamily, catalogue: Catalogue, settings: CaptionSettings
) -> tuple[tuple[int, ...], int] | None:
    """Token counts of the first captions of at most 20,000 samples, evenly spread, including start and end tokens, and
    how many tokens the text encoder reads. None without the model's tokenizer."""
    changes = Changes.of(settings)
    rows = np.unique(np.linspace(0, len(catalogue) - 1, min(len(catalogue), _MEASURED)).astype(np.int64))
    counts: list[int] = []
    limit = 0
    try:
        for chunk in np.array_split(rows, max(1, -(-len(rows) // _CHUNK_SIZE))):
            texts = [(*catalogue.captions(row), "")[0] for row in chunk.tolist()]
            lengths, limit = family.token_counts([without_changes(text, changes) for text in texts])
            counts += lengths
    except WeightsError:
        return None
    return (tuple(counts), limit) if limit else None


def count_truncated(
    family: ModelFamily, catalogue: Catalogue, settings: CaptionSettings, known_by: str = ""
) -> LostWords | None:
    """Counts truncated captions of all samples, the first of each wildcard. None without the model's tokenizer:
    embeddings then come from files. known_by: what the result depends on besides the data set and the settings, as the
    key to store it."""
    changes = Changes.of(settings)
    key = (_VERSION, catalogue.folder.name, catalogue.fingerprint, changes, known_by)
    lost = _read_memo(catalogue.memo.get_json("lost words", key)) if known_by else None
    if lost is None:
        lost = _count(family, catalogue, changes)
        if known_by and lost is not None:
            catalogue.memo.put("lost words", key, json.dumps(asdict(lost)).encode("ascii"), keep=_MAX_RESULTS)
    return lost


def _read_memo(content: Any) -> LostWords | None:
    try:
        tokens = {int(row): int(count) for row, count in content.pop("tokens").items()}
        return LostWords(tokens, **{name: int(number) for name, number in content.items()})
    except (ValueError, KeyError, TypeError, AttributeError):
        return None  # not stored, or in another format


def _count(family: ModelFamily, catalogue: Catalogue, changes: Changes) -> LostWords | None:
    try:
        rows, numbers = catalogue.long_captions(_bytes_that_fit(family))
        chosen = np.unique(np.linspace(0, len(numbers) - 1, min(len(numbers), _LOOKED_AT)).astype(np.int64))
        tokens: dict[int, int] = {}
        cut = 0
        for chunk in np.array_split(chosen, max(1, -(-len(chosen) // _CHUNK_SIZE))):
            lost = family.lost_tokens([without_changes(catalogue.caption(i), changes) for i in numbers[chunk].tolist()])
            for row, count in zip(rows[chunk].tolist(), lost, strict=True):
                if count:
                    cut += 1
                    tokens[row] = max(count, tokens.get(row, 0))
    except WeightsError:
        return None
    return LostWords(tokens, cut, len(chosen), len(numbers), catalogue.num_captions)


def _bytes_that_fit(family: ModelFamily) -> int:
    """Bytes below which a caption always fits: the encoder's token limit, computed from what it truncates of very long
    texts of one-token words."""
    half, whole = family.lost_tokens(["a " * 2000, "a " * 4000])
    bytes_per_token = (whole - half) // 2000
    return 4000 * bytes_per_token - whole if whole else 8000
