"""Learned tokens for CLIP text encoders (textual inversion, Gal et al. 2022, arXiv:2208.01618).

Learned embeddings are stored next to the embedding table, not in it: the table is never modified, so no other token can
change.
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
from mezzotint.weights.files import learned_tokens
from mezzotint.weights.folder.tokenizer import tokenize


class LearnedTokens(nn.Module):
    """Learned embeddings, a parameter (n, D) for each text encoder, under the encoder's name. counts: the number of
    rows of each word, in the order of the rows."""

    def __init__(self, counts: Mapping[str, int], rows: Mapping[str, Tensor]) -> None:
        super().__init__()
        self.counts = dict(counts)
        for part, values in rows.items():
            assert len(values) == sum(counts.values()), part
            self.register_parameter(part, nn.Parameter(values.detach().clone()))

    def forward(self, part: str, indices: Tensor) -> Tensor:
        """Rows of a text encoder at indices (…), (…, D)."""
        return F.embedding(indices, self.get_parameter(part))

    @property
    def token_strings(self) -> tuple[str, ...]:
        """The token string of each row."""
        return tuple(name for word, count in self.counts.items() for name in names_of(word, count))

    def expand_caption(self, text: str) -> str:
        """A caption with every learned word of several rows expanded: `<toy>` becomes `<toy> <toy>_1`."""
        several = {word.lower(): count for word, count in self.counts.items() if count > 1}
        if not several:
            return text
        pattern = "|".join(re.escape(word) for word in sorted(several, key=len, reverse=True))

        def expand(match: re.Match[str]) -> str:
            return " ".join(names_of(match[0], several[match[0].lower()]))

        return re.sub(pattern, expand, text, flags=re.IGNORECASE)

    def rows_of(self, word: str, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """A word's rows for each text encoder. weights: all rows, by encoder."""
        first = 0
        for other, count in self.counts.items():
            if other == word:
                return {part: rows[first : first + count] for part, rows in weights.items()}
            first += count
        raise KeyError(word)


def names_of(word: str, count: int) -> list[str]:
    """The tokens of a word, named as in diffusers: `<toy>`, `<toy>_1`, …"""
    return [word, *(f"{word}_{number}" for number in range(1, count))]


def add_to_tokenizer(tokenizer: Any, tokens: LearnedTokens, where: str) -> int:
    """Adds learned tokens to a tokenizer; returns the id of the first. Raises WeightsError E1470 for one that is a
    token already. where: the tokenizer's name in messages."""
    vocabulary, first = tokenizer.get_vocab(), len(tokenizer)
    for name in tokens.token_strings:
        if {name, name.lower(), f"{name.lower()}</w>"} & vocabulary.keys():
            raise WeightsError(
                f"model.tokens: {name} is already a token of {where}; choose another word, such as "
                f"<{name.strip('<>')}-1>",
                code="E1470",
            )
    tokenizer.add_tokens(list(tokens.token_strings))
    return first


def tokens_of(tokenizer: Any, text: str) -> list[int]:
    """The token ids of a text, without start and end."""
    return cast("list[int]", tokenize(tokenizer, [text], add_special_tokens=False).input_ids[0])


def attach_to_encoder(encoder: nn.Module, part: str, tokens: LearnedTokens, first: int, end: int) -> None:
    """Makes a text encoder look up learned tokens. first: the id of the first. end: the id of the end token, which is
    set in the encoder: configurations from before transformers 4.31 contain 2 and mean the highest id, which would be a
    learned token's."""
    table = cast(Any, encoder).get_input_embeddings()
    table.forward = partial(_embed, table.forward, tokens, part, first)
    for module in encoder.modules():
        if hasattr(module, "eos_token_id"):
            cast(Any, module).eos_token_id = end


def _embed(table: Callable[[Tensor], Tensor], tokens: LearnedTokens, part: str, first: int, ids: Tensor) -> Tensor:
    """ids: (…) int64. Returns (…, D) in the dtype of the table."""
    states = table(ids.clamp(max=first - 1))
    new = tokens(part, (ids - first).clamp(min=0))
    return torch.where((ids >= first)[..., None], new.to(states.dtype), states)


def add_to(family: ModelFamily, settings: ModelSettings) -> None:
    """Adds the learned tokens of `model.tokens` to the loaded text encoders. Raises RecipeError E1473 for a family
    without support, WeightsError E1470 to E1472, and what reading the files raises."""
    tokens = settings.tokens
    if not tokens.has_any:
        return
    if not family.spec.supports_learned_tokens:
        supported = " and ".join(spec.name for spec in specs() if spec.supports_learned_tokens)
        raise RecipeError(
            f"model.tokens: model.family={settings.family} does not support learned tokens, only {supported} do; "
            "remove it",
            code="E1473",
        )
    rows = {word: learned_tokens.read(path, family.text_parts) for word, path in tokens.files.items()}
    family.add_learned_tokens(tokens.words, tokens.vectors, rows)
