"""The captions for which the base model's prediction is preserved (`objective.preserve`)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from mezzotint.settings.sections.captions import CaptionSettings


@dataclass(frozen=True, slots=True)
class PreservedCaptions:
    """kind: as in `objective.preserve`. tokens: the model's learned tokens, which the base does not know."""

    kind: Literal["output", "blank"]
    tokens: tuple[str, ...] = ()

    def of(self, caption: str, settings: CaptionSettings) -> str:
        """The preserved form of a caption: empty, or with the class word in place of the trigger and of learned tokens,
        where they stand as whole words. It equals the caption if nothing is preserved for it. settings: of its data
        set."""
        if self.kind == "blank":
            return ""
        words = sorted(filter(None, (settings.trigger, *self.tokens)), key=len, reverse=True)
        if not words:
            return caption
        pattern = rf"(?<!\w)(?:{'|'.join(map(re.escape, words))})(?!\w)"
        return re.sub(pattern, lambda match: settings.subject_class, caption)
