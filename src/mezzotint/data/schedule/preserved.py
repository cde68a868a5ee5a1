"""The captions for which the base model's prediction is preserved (`objective.preserve`)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from mezzotint import draws
from mezzotint.data.schedule.plan import Visit
from mezzotint.settings.sections.captions import CaptionSettings
from mezzotint.settings.sections.preserve import Kind


def with_class_word(caption: str, settings: CaptionSettings, tokens: Sequence[str]) -> str:
    """A caption with the class word in place of the trigger and of learned tokens, where they stand as whole words. It
    equals the caption if it has none. settings: of its data set."""
    words = sorted(filter(None, (settings.trigger, *tokens)), key=len, reverse=True)
    if not words:
        return caption
    pattern = rf"(?<!\w)(?:{'|'.join(map(re.escape, words))})(?!\w)"
    return re.sub(pattern, lambda match: settings.subject_class, caption)


@dataclass(frozen=True, slots=True)
class PreservedCaptions:
    """kinds, prompts: as in `objective.preserve`. tokens: the model's learned tokens, which the base does not know."""

    kinds: tuple[Kind, ...]
    prompts: tuple[str, ...] = ()
    tokens: tuple[str, ...] = ()

    def at_visit(self, caption: str, settings: CaptionSettings, visit: Visit) -> str:
        """The preserved form of a caption at a visit, of a kind that is drawn. It equals the caption if nothing is
        preserved for it. settings: of its data set."""
        kind = self.kinds[draws.below(visit.draw("preserve"), len(self.kinds))]
        forms = self._forms(kind, caption, settings)
        return forms[draws.below(visit.draw("preserve-prompt"), len(forms))]

    def list_all(self, caption: str, settings: CaptionSettings) -> list[str]:
        """All that `at_visit` can return for a caption."""
        return [form for kind in self.kinds for form in self._forms(kind, caption, settings)]

    def _forms(self, kind: Kind, caption: str, settings: CaptionSettings) -> tuple[str, ...]:
        match kind:
            case "output":
                return (with_class_word(caption, settings, self.tokens),)
            case "blank":
                return ("",)
            case "prompts":
                return self.prompts
        raise AssertionError(kind)
