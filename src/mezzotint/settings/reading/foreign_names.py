"""Settings by the names that other trainers give them, for mistyped recipes, for `explain` and for hints.

Whole command lines of other trainers are read by `dialects`; this is for a single word that somebody has in mind. The
tables are modules of the group `mezzotint.settings.setting_names`: `NAMES`, a `Foreign` by its name in small letters
with underscores, and `VALUES`, by our setting what it takes for a foreign value in small letters with hyphens;
`UNREAD`, see `unread`.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import ModuleType

from mezzotint import registry

FOLDER = "settings/setting_names"


@dataclass(frozen=True, slots=True)
class Foreign:
    """A name of other trainers. path: our setting or section, None where there is none. origins: who calls it so. note:
    how the values differ, or what to do instead; a sentence without its full stop, "" when nothing differs."""

    path: str | None
    origins: tuple[str, ...]
    note: str = ""

    @property
    def origin(self) -> str:
        """`kohya`, `kohya and diffusers`, `kohya, diffusers and OneTrainer`."""
        *most, last = self.origins
        return f"{', '.join(most)} and {last}" if most else last


def foreign(name: str) -> Foreign | None:
    """What a name means that another trainer uses, or None. name: with or without dashes, in any spelling:
    `--learning_rate`, `learning-rate`, `learningRate`."""
    spelled = re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", name.lstrip("-")).lower().replace("-", "_")
    return foreign_names().get(spelled)


def value_of(setting: str, value: object) -> str | None:
    """What a setting takes for a word that another trainer would write there, or None: `fp32` for run.precision=no."""
    word = re.sub(r"[\s_]+", "-", str(value).strip().lower())
    return next((table.VALUES[setting][word] for table in _tables() if word in table.VALUES.get(setting, {})), None)


def unread(trainer: str) -> str | None:
    """A sentence on a trainer whose settings are known and whose command lines are not read; None for any other.
    trainer: its name in any spelling."""
    spelled = re.sub(r"[^a-z]", "", trainer.lower())
    return next((table.UNREAD[spelled] for table in _tables() if spelled in table.UNREAD), None)


@functools.cache
def foreign_names() -> Mapping[str, Foreign]:
    """Every name that is known."""
    return {name: known for table in _tables() for name, known in table.NAMES.items()}


def _tables() -> list[ModuleType]:
    return [registry.find(FOLDER, name) for name in registry.names(FOLDER, skip_unimported=True)]
