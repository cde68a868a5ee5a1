"""New words for text encoders of CLIP's kind (textual inversion, Gal et al. 2022, arXiv:2208.01618).

A new word's rows lie beside the token table, not in it: the table is never written to, so that no other word can move.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mezzotint.errors import RecipeError, WeightsError
from mezzotint.families.base import ModelFamily
from mezzotint.settings.families.base import specs
from mezzotint.settings.sections.model import ModelSettings
from mezzotint.weights.files import new_words
from mezzotint.weights.folder.tokenizer import tokenize


class NewWords(nn.Module):
    """Rows of new words, a parameter (n, D) for each text encoder, under the encoder's name. counts: how many rows each
    word has, in the order of the rows."""

    def __init__(self, counts: Mapping[str, int], rows: Mapping[str, Tensor]) -> None:
        super().__init__()
        self.counts = dict(counts)
        for part, own in rows.items():
            assert len(own) == sum(counts.values()), part
            self.register_parameter(part, nn.Parameter(own.detach().clone()))

    def forward(self, part: str, places: Tensor) -> Tensor:
        """Rows of a text encoder at places (…), (…, D)."""
        return F.embedding(places, self.get_parameter(part))

    @property
    def spelled(self) -> tuple[str, ...]:
        """What the tokenizer knows each row as."""
        return tuple(name for word, count in self.counts.items() for name in names_of(word, count))

    def in_text(self, text: str) -> str:
        """A caption, with every new word of several rows written out: `<toy>` becomes `<toy> <toy>_1`."""
        several = {word.lower(): count for word, count in self.counts.items() if count > 1}
        if not several:
            return text
        pattern = "|".join(re.escape(word) for word in sorted(several, key=len, reverse=True))

        def written_out(match: re.Match[str]) -> str:
            return " ".join(names_of(match[0], several[match[0].lower()]))

        return re.sub(pattern, written_out, text, flags=re.IGNORECASE)

    def rows_of(self, word: str, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """A word's rows of each text encoder. weights: all rows, by encoder."""
        first = 0
        for other, count in self.counts.items():
            if other == word:
                return {part: rows[first : first + count] for part, rows in weights.items()}
            first += count
        raise KeyError(word)


def names_of(word: str, count: int) -> list[str]:
    """The tokens of a word, as diffusers names them: `<toy>`, `<toy>_1`, …"""
    return [word, *(f"{word}_{number}" for number in range(1, count))]


def add_to_tokenizer(tokenizer: Any, words: NewWords, where: str) -> int:
    """Makes a tokenizer know new words; returns the number of the first. Raises WeightsError E1470 for one that is a
    token already. where: what the message calls the tokenizer."""
    known, first = tokenizer.get_vocab(), len(tokenizer)
    for name in words.spelled:
        if {name, name.lower(), f"{name.lower()}</w>"} & known.keys():
            raise WeightsError(
                f"model.tokens: {name} is a token of {where} already; write a new word, such as <{name.strip('<>')}-1>",
                code="E1470",
            )
    tokenizer.add_tokens(list(words.spelled))
    return first


def tokens_of(tokenizer: Any, words: str) -> list[int]:
    """The tokens of some words, without start and end."""
    return cast("list[int]", tokenize(tokenizer, [words], add_special_tokens=False).input_ids[0])


def put_on(encoder: nn.Module, part: str, words: NewWords, first: int, end: int) -> None:
    """Lets a text encoder look new words up. first: the number of the first new token. end: of the token at a
    caption's end, whose place the encoder is told: configurations of before transformers 4.31 say 2 and mean the
    highest number, which a new word would have."""
    table = cast(Any, encoder).get_input_embeddings()
    table.forward = partial(_look_up, table.forward, words, part, first)
    for module in encoder.modules():
        if hasattr(module, "eos_token_id"):
            cast(Any, module).eos_token_id = end


def _look_up(known: Callable[[Tensor], Tensor], words: NewWords, part: str, first: int, ids: Tensor) -> Tensor:
    """ids: (…) int64. Returns (…, D) in the type of the table."""
    states = known(ids.clamp(max=first - 1))
    new = words(part, (ids - first).clamp(min=0))
    return torch.where((ids >= first)[..., None], new.to(states.dtype), states)


def add_to(family: ModelFamily, settings: ModelSettings) -> None:
    """Makes the loaded text encoders know the words of `model.tokens`. Raises RecipeError E1473 for a family that takes
    none, WeightsError E1470 to E1472 and what reading files raises."""
    tokens = settings.tokens
    if not tokens.are_there:
        return
    if not family.spec.has_new_words:
        taking = " and ".join(spec.name for spec in specs() if spec.has_new_words)
        raise RecipeError(
            f"model.tokens: model.family={settings.family} takes no new words, {taking} do; leave it out", code="E1473"
        )
    rows = {word: new_words.read(path, family.text_parts) for word, path in tokens.files.items()}
    family.add_words(tokens.words, tokens.vectors, rows)
