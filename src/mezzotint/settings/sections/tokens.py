"""New words of the text encoders, textual inversion: which there are, what they begin as, where they come from."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from pydantic import Field

from mezzotint.settings.base import NEVER, InputPath, Section

PART = "tokens"
"""What `model.train` calls the new words' rows."""


class TokenSettings(Section):
    """New words for every text encoder of the model, each with rows of its own beside the token table (textual
    inversion, arXiv:2208.01618). They are trained where `model.train` names `tokens`, alone or beside other parts; all
    other rows stay as they are, to the bit."""

    words: Annotated[dict[str, str], NEVER] = Field(default_factory=dict)
    """New words, and the words that each begins as: `{"<toy>": toy}`. A new word is written in captions and prompts as
    it stands here; it must not be a token already, which is why angle brackets are customary."""

    vectors: Annotated[int, Field(gt=0, le=1000), NEVER] = 1
    """How many tokens a new word of `words` stands for. Each begins as one token of the words it begins as, in turn.
    More can hold more, and leave less room for the rest of a caption."""

    files: Annotated[dict[str, InputPath], NEVER] = Field(default_factory=dict)
    """New words that files bring, of ours or of another program: `{"<toy>": learned_embeds.safetensors}`. Read are
    diffusers' files (of SDXL the folder with both), A1111's .pt, and kohya's .safetensors. They are trained further
    where `model.train` names `tokens`, and are as they are where it does not."""

    @property
    def are_there(self) -> bool:
        """Whether the model gets new words."""
        return bool(self.words or self.files)

    @property
    def all(self) -> tuple[str, ...]:
        """The new words, whether they begin here or come from files."""
        return (*self.words, *self.files)

    def contradictions(self) -> Iterator[str]:
        both = sorted(set(self.words) & set(self.files))
        if both:
            yield f"model.tokens.words and model.tokens.files both bring {', '.join(both)}; leave one of them out"
        for word in self.all:
            if not word or word != word.strip() or len(word.split()) != 1:
                yield f"model.tokens: {word!r} is no word; write one without spaces, such as <toy>"
        for word, begins in self.words.items():
            if not begins.strip():
                yield f"model.tokens.words: {word} begins as nothing; write a word that is near it, such as toy"
        if self.vectors > 1 and not self.words:
            yield "model.tokens.vectors is about model.tokens.words, which has none; leave it out"
