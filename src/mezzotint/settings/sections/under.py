"""Frozen adapters under a run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

from pydantic import BeforeValidator

from mezzotint.settings.base import FREE, NEVER, InputPath, Section


class UnderSettings(Section):
    """A frozen adapter that changes the denoiser while it is trained."""

    path: Annotated[InputPath, FREE]
    """The adapter's file, or a folder with one, of any kind and layout that `model.adapter.path` reads. A resumed run
    reads it again and compares its content."""

    strength: Annotated[float, NEVER] = 1.0
    """The factor of its change; 1 is as trained."""

    def contradictions(self) -> Iterator[str]:
        if not self.strength:
            yield f"model.under: {self.path} has strength 0, which changes nothing; leave it out"


def as_settings(value: Any) -> Any:
    """Also accepts paths alone, one or several."""
    values = value if isinstance(value, list | tuple) else [value]
    return [value if isinstance(value, dict | UnderSettings) else {"path": value} for value in values]


Under = Annotated[tuple[UnderSettings, ...], BeforeValidator(as_settings), NEVER]
"""Frozen adapters under a run, in the order in which they are added."""
