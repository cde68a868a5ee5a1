"""Sample prompt files, and when they are sampled."""

from __future__ import annotations

from mezzotint.compat.kit.dialect import Draft
from mezzotint.compat.kohya._scripts import Script


def set_previews(draft: Draft, script: Script) -> None:
    """Sets `run.preview` and the prompts of `sample`."""
