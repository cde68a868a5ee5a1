"""Learned tokens of the text encoders (textual inversion): their names, initial words and files."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from pydantic import Field

from mezzotint.settings.base import NEVER, InputPath, Section

PART = "tokens"
"""The name of learned tokens in `model.train`."""


class TokenSettings(Section):
    """Learned tokens for every text encoder of the model, with rows separate from the token table (textual inversion,
    arXiv:2208.01618). They are trained if `model.train` names `tokens`, on their own or together with other parts; all
    other rows stay bitwise identical."""

    words: Annotated[dict[str, str], NEVER] = Field(default_factory=dict)
    """New tokens, and the words that each is initialised from: `{"<toy>": toy}`. Write a new token in captions and
    prompts exactly like this; it must not be a token already, which is why angle brackets are customary."""

    vectors: Annotated[int, Field(gt=0, le=1000), NEVER] = 1
    """How many embedding vectors each token of `words` has. They are initialised from the tokens of its initial words,
    one after the other. More can represent more, and leave less room for the rest of a caption."""

    files: Annotated[dict[str, InputPath], NEVER] = Field(default_factory=dict)
    """Learned tokens from files, of Mezzotint or another program: `{"<toy>": learned_embeds.safetensors}`. Supported
    are diffusers' files (for SDXL the folder with both), A1111's .pt, and kohya's .safetensors. They are trained
    further if `model.train` names `tokens`, otherwise frozen."""

    @property
    def has_any(self) -> bool:
        """Whether the model gets learned tokens."""
        return bool(self.words or self.files)

    @property
    def all(self) -> tuple[str, ...]:
        """All learned tokens, initialised here or read from files."""
        return (*self.words, *self.files)

    def contradictions(self) -> Iterator[str]:
        both = sorted(set(self.words) & set(self.files))
        if both:
            yield f"model.tokens.words and model.tokens.files both define {', '.join(both)}; leave one of them out"
        for word in self.all:
            if not word or word != word.strip() or len(word.split()) != 1:
                yield f"model.tokens: {word!r} is not a token name; write one without spaces, such as <toy>"
        for word, initial in self.words.items():
            if not initial.strip():
                yield f"model.tokens.words: {word} has no initial word; write one with a similar meaning, such as toy"
        if self.vectors > 1 and not self.words:
            yield "model.tokens.vectors is for model.tokens.words, which is empty; leave it out"
